"""Requirements on a `build.toml` beyond the shape of its tables.

A rule is a function from the document to issues. Rules never stop at the first issue, never raise,
and look at files only through the context's source tree. `kbuild.project.config.load` applies all.
"""
