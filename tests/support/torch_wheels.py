"""Tiny Torch wheels as a user may give them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kbuild.system.processes import LocalRunner
from kbuild.toolchains.torch_wheel import TorchWheel, open_wheel
from tests.support.toolkit_wheels import TORCH_MEMBERS
from tests.support.wheel_index import make_wheel

TAG = "cp312-cp312-manylinux_2_28_x86_64"
FIELDS = {"rocm": "hip", "cu": "cuda", "xpu": "xpu"}
VALUES = {"rocm7.1": "7.1.25424-4179531dcd", "rocm7.2": "7.2.53211", "cu126": "12.6",
          "cu130": "13.0", "xpu": "20250302", "cpu": None}  # fmt: skip


def version_file(version: str, **fields: str | None) -> bytes:
    lines = [f"{name}: Optional[str] = {fields.get(name)!r}" for name in ("cuda", "hip", "xpu")]
    return "\n".join(("from typing import Optional", f"__version__ = {version!r}", *lines)).encode()


def flavour(version: str) -> dict[str, str | None]:
    local = version.partition("+")[2]
    field = next((field for start, field in FIELDS.items() if local.startswith(start)), None)
    return {field: VALUES[local]} if field else {}


def torch_wheel(
    folder: Path,
    version: str = "2.13.0+rocm7.1",
    *,
    tag: str = TAG,
    members: Mapping[str, bytes] | None = None,
    lie: Mapping[str, bytes] | None = None,
) -> Path:
    """A Torch wheel of that version, with the fields that its local version stands for."""
    own = {
        **TORCH_MEMBERS,
        "torch/version.py": version_file(version, **flavour(version)),
        "torch/lib/libc10_hip.so": b"c10_hip",
        f"torch-{version}.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
        **(members or {}),
    }
    return make_wheel(folder, "torch", version, own, tag=tag, lie=lie)


def opened(folder: Path, version: str = "2.13.0+rocm7.1") -> TorchWheel:
    return open_wheel(torch_wheel(folder, version), folder / "cache", LocalRunner())
