"""Ops derived from the recorded runs of an author's Python wrappers."""
