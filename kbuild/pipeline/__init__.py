"""The whole way: which variants, their plans, a toolchain for each, build, check, package.

Functions here only name stages; what a stage does is in its own module. They are looked up when
they are used: a build by Nix needs no toolchain of this machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbuild.pipeline.options import BuildOptions, Doors
    from kbuild.pipeline.plans import fitted, plan, refusals, with_toolchains

__all__ = ["BuildOptions", "Doors", "fitted", "plan", "refusals", "with_toolchains"]

_HOMES = {"BuildOptions": "options", "Doors": "options"}


def __getattr__(name: str) -> Any:
    """The name, out of its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'plans')}"), name)
