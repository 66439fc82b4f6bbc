"""From plans to the files of a CMake project, as a `FileSet`: the same plans, the same bytes."""
