"""The whole way: which variants, their plans, a toolchain for each, build, check, package.

Functions here only name stages; what a stage does is in its own module.
"""

from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions, Doors
from kbuild.pipeline.plans import fitted, plan, refusals, with_toolchains

__all__ = ["BuildOptions", "Doors", "build", "fitted", "plan", "refusals", "with_toolchains"]
