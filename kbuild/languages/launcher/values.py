"""What a launcher is made from: ops with everything that was compiled for them."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.languages.compiled import Compiled
from kbuild.languages.spec import Bound, Launch, OpSpec


@dataclass(frozen=True)
class LaunchedLaunch:
    """One launch of an op with its images."""

    launch: Launch
    """With the kernel's own candidates put in where it is autotuned."""
    bound: Bound
    compiled: tuple[Compiled, ...]


@dataclass(frozen=True)
class LaunchedOp:
    """An op with all its launches."""

    spec: OpSpec
    launches: tuple[LaunchedLaunch, ...]
