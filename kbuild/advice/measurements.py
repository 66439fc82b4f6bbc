"""`header_measurements.toml`: what the compilers took for one `#include`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

HOST_LANGUAGES = ("CXX", "OBJC", "OBJCXX")


@dataclass(frozen=True)
class Measured:
    """One header's figures, CPU seconds on the machine of the measurement."""

    header: str
    host: float
    base: float | None
    """What the device compiler takes once; None when it was not measured."""
    arch: float | None
    """What it takes for each architecture."""

    def seconds(self, language: str, archs: int) -> float | None:
        """Of a unit in a CMake language, compiled for so many architectures."""
        if language in HOST_LANGUAGES:
            return self.host
        if self.base is None or self.arch is None:
            return None
        return self.base + self.arch * archs


@cache
def measurements() -> Mapping[str, Measured]:
    """Header -> its figures; the empty name is a file that includes nothing."""
    return {row["header"]: _measured(row) for row in _data()["measured"]}


@cache
def measured_with() -> str:
    """Versions of the compilers and of Torch."""
    return str(_data()["with"])


@cache
def _data() -> Mapping[str, Any]:
    import tomli

    path = resources.files("kbuild.advice").joinpath("header_measurements.toml")
    return tomli.loads(path.read_text("utf-8"))


def _measured(row: Mapping[str, Any]) -> Measured:
    device = row.get("device", {})
    return Measured(
        row["header"],
        row["host"]["seconds"],
        device.get("base"),
        device.get("arch"),
    )
