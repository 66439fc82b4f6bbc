"""Versions of a kernel wherever they are kept, what differs between two, and which fits here."""
