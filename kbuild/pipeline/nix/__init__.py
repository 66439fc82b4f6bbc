"""Nix as a driver: which Nix is there, what a project's flake offers, and realising it.

Nothing here decides how a variant is compiled: inside each derivation kbuild builds its own plan.
"""
