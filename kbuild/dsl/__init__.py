"""Kernels written in Python DSLs, compiled ahead of time: from a section to images.

What is read of a section is language-neutral: `expression` (sizes, grids, predicates), `schema`
(Torch function schemas), `spec` (the checked values). `expand` makes units of them; a unit compiled
gives an `image`.
"""
