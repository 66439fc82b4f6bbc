"""For tools that still read this file; pyproject.toml describes the build."""

from setuptools import setup

setup()
