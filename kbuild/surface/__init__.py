"""What a kernel's Python package offers, read off its syntax tree: nothing is imported or run."""

from kbuild.surface.compare import Change, compare
from kbuild.surface.model import Class, Function, Kind, Parameter, Surface, SurfaceError
from kbuild.surface.read import package_of, read_surface

__all__ = [
    "Change",
    "Class",
    "Function",
    "Kind",
    "Parameter",
    "Surface",
    "SurfaceError",
    "compare",
    "package_of",
    "read_surface",
]
