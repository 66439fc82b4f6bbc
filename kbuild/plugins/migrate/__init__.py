"""Turns a package that builds with setuptools into a project that kbuild builds.

`sources` reads what is there; `cxx` and `python` rewrite its code; `sections` and `project` write
the new project and list what could not be taken over.
"""
