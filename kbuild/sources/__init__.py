"""Readers of C++ and Python sources; nothing here knows checks, builds or languages."""
