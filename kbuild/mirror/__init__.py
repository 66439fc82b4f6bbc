"""Mirrors: folders and object stores that hold published kernels, without a Hub."""
