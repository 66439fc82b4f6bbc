"""Runs in a process with Torch and Triton: follows every path of a Python wrapper."""
