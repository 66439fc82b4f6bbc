"""From a package that builds with setuptools or CMake to a project that kbuild builds.

`sources` reads what is there, `cxx` and `python` rewrite bindings and imports, `project` writes
the new project's files and lists what could not be taken over.
"""
