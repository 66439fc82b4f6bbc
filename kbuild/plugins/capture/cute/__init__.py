"""Capture of CuTe DSL at `cute.compile`."""
