"""Turns a package that builds with setuptools into a project that kbuild builds.

`sources` and `metadata` read what is there; `licence`, `flags`, `cxx`, `registrations` and `python`
take it over; `sections` and `project` write the new project and list what could not be taken over.
"""
