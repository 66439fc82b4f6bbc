"""What a wheel says of itself: its version file, its tags and its CMake package, read as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.scratch import scratch_folder
from kbuild.toolchains import probe
from kbuild.toolchains.wheels.archive import Wheel
from kbuild.toolchains.wheels.lock import LockedWheel

VERSION_FILE = "torch/version.py"
_CMAKE_FILE = "torch/share/cmake/Torch/TorchConfig.cmake"
_HEADERS = "torch/include/"
_TAG = re.compile(r"^Tag: *([^-\s]+)-([^-\s]+)-(\S+)", re.MULTILINE)
_PLATFORMS = (
    (re.compile(r"(?:many|musl)?linux\w*_(x86_64|aarch64)"), "linux"),
    (re.compile(r"macosx_\w+_(x86_64|arm64)"), "darwin"),
    (re.compile(r"win_(amd64|arm64)"), "windows"),
)
_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_CPYTHON = re.compile(r"cp3(\d+)")
_OLDEST_MINOR = 9
# What a local version begins with, and the field of version.py that then has a value.
_LOCAL = (("rocm", "hip"), ("xpu", "xpu"), ("cu", "cuda"))


def read_wheel(path: Path, sha256: str, size: int) -> dict[str, Any]:
    """The facts of a Torch wheel, as JSON.

    Args:
        path: the wheel.
        sha256: of the whole file.
        size: bytes.

    Returns:
        `name`, `sha256`, `size`, `system`, `version`, and as in `probe.torch_facts`: `cuda`,
        `hip`, `xpu`, `cxx11_abi`.

    Raises:
        ToolchainError: it is damaged, no Torch, or not for CPython 3.9 or newer.
    """
    wheel = Wheel(LockedWheel(path.name, sha256, size), path)
    try:
        _refuse_others(wheel)
        tags = wheel.read(wheel.metadata_name("WHEEL")).decode("utf-8", "replace")
        found = _flavour(wheel, path.name)
    finally:
        wheel.close()
    system = _system(tags, path.name)
    return {"name": path.name, "sha256": sha256, "size": size, "system": system, **found}


def _refuse_others(wheel: Wheel) -> None:
    names = wheel.names
    if VERSION_FILE not in names or not any(name.startswith(_HEADERS) for name in names):
        raise ToolchainError(
            f"{wheel.locked.filename} is no wheel of Torch: it has no {VERSION_FILE}, or no headers"
        )


def _flavour(wheel: Wheel, name: str) -> dict[str, Any]:
    with scratch_folder("wheel") as scratch:
        for member in (VERSION_FILE, _CMAKE_FILE):
            if member in wheel.names:
                copy = scratch / member
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(wheel.read(member))
        values = probe.assignments(str(scratch / VERSION_FILE))
        cxx11 = probe.cxx11_abi(str(scratch / "torch"))
    fields = {key: str(values[key]) if values.get(key) else None for key in ("cuda", "hip", "xpu")}
    version = str(values.get("__version__") or "")
    if not re.match(r"\d+\.\d+", version):
        raise ToolchainError(f"{name}: {VERSION_FILE} names no version of Torch")
    _refuse_contradiction(name, version, fields)
    return {"version": version, **fields, "cxx11_abi": cxx11}


def _refuse_contradiction(name: str, version: str, fields: dict[str, str | None]) -> None:
    """`+rocm7.1` without a HIP release, or the other way round."""
    local = version.partition("+")[2]
    said = next((field for start, field in _LOCAL if local.startswith(start)), None)
    is_known = said is not None or local.startswith("cpu")
    actual = next((field for _, field in _LOCAL if fields[field]), None)
    if is_known and said != actual:
        raise ToolchainError(
            f"{name}: {VERSION_FILE} contradicts itself: the version is {version}, "
            f"and {actual or said} is {fields.get(actual or '')}"
        )


def _system(tags: str, name: str) -> str:
    """`x86_64-linux`, from the wheel's own tags; its file name is not asked."""
    found = _TAG.findall(tags)
    if not found:
        raise ToolchainError(f"{name} has no tag that says what it is for")
    python, _, platform = found[0]
    cpython = _CPYTHON.fullmatch(python)
    if cpython is None or int(cpython[1]) < _OLDEST_MINOR:
        raise ToolchainError(
            f"{name} is for Python `{python}`; kernels are built for CPython 3.{_OLDEST_MINOR} on",
            hint="give a wheel for CPython; any release serves, the headers are the same",
        )
    for pattern, system in _PLATFORMS:
        match = pattern.match(platform)
        if match is not None:
            return f"{_CPUS.get(match[1], match[1])}-{system}"
    raise ToolchainError(f"{name} is for `{platform}`, which kbuild does not know")
