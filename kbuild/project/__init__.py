"""A project as its author wrote it: `build.toml`, the matrix of releases, names of variants."""

DEVELOPMENT_ID = "dev"
"""`Identity.unique_id` of builds by `kbuild build --dev`, `kbuild dev` and `kbuild.load`, which
looks up a built variant without importing `kbuild.plan.variant`."""
