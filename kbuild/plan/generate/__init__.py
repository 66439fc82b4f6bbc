"""The files of a CMake project as a `FileSet`: the same plans give the same bytes."""
