"""Debian packages without dpkg or root: fetched by digest, unpacked where they are wanted."""
