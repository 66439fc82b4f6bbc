"""`kbuild aot triton` and `link`: kernels as self-contained C, and a function for several.

It does what `triton.tools.compile` and `triton.tools.link` do, with the same options on the command
line. `command` reads the options and compiles, `signature` reads what arguments are, `c_source`
writes the C of one image, `link` the dispatcher of several.
"""
