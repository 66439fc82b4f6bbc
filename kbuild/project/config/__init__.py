"""`build.toml`: the models of its sections, reading it with line numbers, and its older editions.

Knows nothing about backends or the build matrix: what a `[kernel.*]` section of a given backend
may say is handed in as a `BackendCatalog`.
"""
