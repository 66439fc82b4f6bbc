"""Finds what keeps a project from Torch's stable ABI.

`stable_abi.toml` says what the stable ABI has in place of Torch's C++ API. `stable_abi` reads it,
`uses` finds the uses in one file, and `survey` puts a project's answer together, backend by
backend. Nothing is compiled and no Torch is needed: the answer is read from the sources, and is
advice.
"""
