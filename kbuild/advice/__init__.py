"""What keeps a project from Torch's stable ABI, and what its Torch headers cost.

`stable_abi.toml` says what the stable ABI has in place of Torch's C++ API, `header_costs.toml` what
including a Torch header costs. `tokens` reads C++, `table` and `costs` read the data, `scan` finds
the uses in one file, and `survey` puts a project's answer together, backend by backend. Nothing is
compiled and no Torch is needed: the answer is read from the sources, and is advice.
"""
