"""Plug-ins that come with kbuild. They register as anybody's do; nothing of kbuild imports them.

`cxx_signatures` and `pybind` read C++ for those of them that bind an author's functions.
"""
