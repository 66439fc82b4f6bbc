"""The words for headers that are not to be had: what was tried, and what to type."""

from __future__ import annotations

from collections.abc import Mapping

from kbuild.errors import ToolchainError
from kbuild.toolchains.sources.folder import OPTION
from kbuild.toolchains.sources.pins import Pin

Tried = Mapping[str, str]
"""Way -> why it did not lead anywhere."""


def unavailable(pin: Pin, tried: Tried) -> ToolchainError:
    """The error, with every way to supply the headers as commands."""
    listed = "".join(f"\n    {way}: {reason}" for way, reason in tried.items())
    return ToolchainError(
        f"the headers of {pin.title} (`{pin.name}`) are not to be had; tried:{listed}",
        hint="\n    ".join(_advice(pin)),
    )


def in_short(pin: Pin) -> str:
    """One sentence for a list of variants."""
    return (
        f"needs the headers of {pin.title}, which cannot be fetched; "
        f"{OPTION} {pin.name}=DIR takes a folder"
    )


def _advice(pin: Pin) -> list[str]:
    folder = f"{pin.name}-{pin.version}"
    lines = [f"get {pin.title} where there is a network, then name its folder:"]
    if pin.library.repository:
        lines += [f"git clone --depth 1 --branch {pin.tag} {pin.library.repository} {folder}"]
    lines += [f"kbuild build {OPTION} {pin.name}={folder}"]
    if pin.library.source_dir:
        lines += [f"or, for every command: export {pin.library.source_dir}=$PWD/{folder}"]
    if pin.wheel:
        wanted = f"{pin.wheel.locked.project}=={pin.wheel.locked.version}"
        lines += [
            f"or, from a folder of wheels: pip download --no-deps -d wheelhouse {wanted}",
            "PIP_FIND_LINKS=$PWD/wheelhouse kbuild build",
        ]
    return lines
