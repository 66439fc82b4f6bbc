"""For tools that still look for this file; pyproject.toml says how the package is built."""

raise SystemExit("Run `kbuild build`, or `pip wheel .` for a wheel.")
