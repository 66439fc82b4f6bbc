"""Targets as Triton's own tools take them, `cuda:90:32` and `hip:gfx942:64`, and as kbuild does."""

from __future__ import annotations

import re

from kbuild.errors import UsageError
from kbuild.languages.target import Target

_CUDA = re.compile(r"cuda:(?P<number>\d{2,3})(?P<feature>[af]?)(?::(?P<warp>\d+))?")
_HIP = re.compile(r"hip:(?P<arch>gfx\w+)(?::(?P<warp>\d+))?")
_ONE_CHIP = 90
"""From here on Triton makes code for one chip alone: `sm_90a`."""
_WARP = 32
_HINT = "e.g. `cuda:90:32`, `hip:gfx942:64`, `sm_80`, `compute_80` for PTX"


def read_target(text: str) -> Target:
    """The target that a text means.

    Raises:
        UsageError: it means none.
    """
    if match := _CUDA.fullmatch(text):
        _judge_warp(text, match["warp"], _WARP)
        feature = match["feature"] or ("a" if int(match["number"]) >= _ONE_CHIP else "")
        return _parsed(f"sm_{match['number']}{feature}", text)
    if match := _HIP.fullmatch(text):
        target = _parsed(match["arch"], text)
        _judge_warp(text, match["warp"], warp_of(target))
        return target
    return _parsed(text, text)


def warp_of(target: Target) -> int:
    """Threads of a warp, which AMD calls a wavefront."""
    return 64 if target.arch.startswith("gfx9") else _WARP


def _parsed(arch: str, text: str) -> Target:
    try:
        return Target.parse(arch)
    except ValueError:
        raise UsageError(f"`{text}` is not a target", hint=_HINT) from None


def _judge_warp(text: str, given: str | None, real: int) -> None:
    if given is not None and int(given) != real:
        raise UsageError(f"`{text}`: warps of that arch have {real} threads, not {given}")
