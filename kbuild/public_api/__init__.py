"""The public API of a kernel's Python package, read from its syntax tree without running it."""
