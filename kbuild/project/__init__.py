"""A project as its author wrote it: `build.toml`, the matrix of releases, names of variants."""
