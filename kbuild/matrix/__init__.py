"""The build matrix as data, and which of its points a project and a command line ask for.

`versions.toml` is the one place to add a Torch release; `archs/*.toml` hold what each toolkit
can target.
"""
