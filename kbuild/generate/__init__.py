"""From plans to the files of a CMake project, as a `FileSet`: the same plans, the same bytes."""

from kbuild.generate.project import generate, generate_project

__all__ = ["generate", "generate_project"]
