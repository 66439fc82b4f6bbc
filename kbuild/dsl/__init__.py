"""Kernels written in Python DSLs: compiled ahead of time, tuned, and launched without the DSL.

A language is a package in `kbuild/dsl/languages/`, and a compiler in a process of its own
(`kbuild/dsl/worker/`). `kbuild.ops` says what an op is, and a plan names what is compiled.
"""
