"""Descriptions of ops: schema, expressions, launches, tuned tables."""
