"""Where a variant comes from: the kbuild that built it, and everything that went in."""
