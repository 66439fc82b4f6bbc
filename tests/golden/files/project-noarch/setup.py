"""For tools that still look for this file; pyproject.toml says how the package is built."""

from setuptools import setup

setup()
