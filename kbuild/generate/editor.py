"""What editors read: `CMakePresets.json`, `.clangd`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.backends.base import EditorHints
from kbuild.generate import templates
from kbuild.plan import VariantPlan

_PRESETS_VERSION = 6
_CMAKE = {"major": 3, "minor": 26, "patch": 0}
_FOLDER = ".kbuild"
_HOST_NAMES = {"linux": "Linux", "darwin": "Darwin", "windows": "Windows"}


def presets_text(plans: Sequence[VariantPlan]) -> str:
    """One configure and one build preset per variant, shown on the systems they are for."""
    presets = {
        "version": _PRESETS_VERSION,
        "cmakeMinimumRequired": _CMAKE,
        "configurePresets": [_configure_preset(plan) for plan in plans],
        "buildPresets": [{"name": plan.variant, "configurePreset": plan.variant} for plan in plans],
    }
    return json.dumps(presets, indent=2) + "\n"


def clangd_text(plans: Sequence[VariantPlan], away: str = "") -> str:
    """The compile commands of the variant configured last, made palatable to clang.

    Args:
        plans: the compiled variants.
        away: the way from the file to the source tree; empty when it lies there.
    """
    hints = {plan.backend: _hints(plan) for plan in reversed(plans)}
    return templates.render(
        "project/clangd.j2",
        database=f"{away}/{_FOLDER}" if away else _FOLDER,
        editors=[found for _, found in sorted(hints.items()) if found is not None],
    )


def _configure_preset(plan: VariantPlan) -> dict[str, Any]:
    system = plan.parsed_variant.system
    host = _HOST_NAMES[system.os] if system else ""
    return {
        "name": plan.variant,
        "generator": "Ninja",
        "binaryDir": f"${{sourceDir}}/{_build_folder(plan)}",
        "cacheVariables": {"CMAKE_BUILD_TYPE": "Release", "KBUILD_VARIANT": plan.variant},
        "condition": {"type": "equals", "lhs": "${hostSystemName}", "rhs": host},
    }


def _build_folder(plan: VariantPlan) -> str:
    return f"{_FOLDER}/{plan.variant}/cmake"


def _hints(plan: VariantPlan) -> EditorHints | None:
    return BACKENDS.get(plan.backend).editor(plan.archs)
