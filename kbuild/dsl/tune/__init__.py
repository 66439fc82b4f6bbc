"""Tuning on real GPUs: every candidate of an op measured, the winners kept in the project's tables.

`cases` makes calls from an op's `tune` table, `jobs` what is measured of them. The programs in
`probes` run in the user's interpreter, one process for each GPU, and need only Torch. `journal`
remembers what was measured, `winners` makes rows of it. `imports` reads what others measured.
"""
