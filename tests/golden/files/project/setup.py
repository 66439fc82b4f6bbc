"""For tools that still read this file; pyproject.toml describes the build."""

raise SystemExit("Run `kbuild build`, or `pip wheel .` for a wheel.")
