"""NineToothed's code generator in front of Triton's compiler, asked without a GPU."""

from kbuild.languages.worker.ninetoothed.compiler import Compiler

__all__ = ["Compiler"]
