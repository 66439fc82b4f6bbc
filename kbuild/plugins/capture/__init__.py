"""From the recorded paths of a Python wrapper to sections of ops."""
