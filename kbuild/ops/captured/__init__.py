"""Ops that were derived from an author's Python wrappers: descriptions, and code made of them."""
