"""Entries of the store that are unpacked from pinned archives are named by a layout's number.

Their makers' code is no part of the name: gigabytes would be fetched again for every comment. So a
change of that code has to be looked at here, and decided on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kbuild
from kbuild.installation import code_digest
from kbuild.languages import environment
from kbuild.toolchains.debian_hip.pins import pins
from kbuild.toolchains.debian_nvcc import maker
from kbuild.toolchains.torch_wheel import given
from kbuild.toolchains.wheels import cuda, headers
from kbuild.toolchains.wheels.torch import TORCH
from kbuild.toolchains.wheels.tvm_ffi import TVM_FFI

PACKAGE = Path(kbuild.__file__).parent
LAYOUTS: dict[str, tuple[int | str, ...]] = {
    "cuda": (
        1,
        "17f4456a4f89af47",
        "toolchains/wheels/cuda.py",
        "toolchains/wheels/stubs.py",
    ),
    "headers": (
        1,
        "149aa05c73584d9d",
        "toolchains/wheels/headers.py",
    ),
    "torch": (
        1,
        "d18c2ebf7f9bbb5f",
        "toolchains/wheels/torch.py",
        "toolchains/wheels/tree.py",
        "toolchains/wheels/stubs.py",
    ),
    "tvm-ffi": (
        1,
        "499556457c47cec4",
        "toolchains/wheels/tvm_ffi.py",
        "toolchains/wheels/tree.py",
        "toolchains/wheels/stubs.py",
    ),
    "debian-nvcc": (
        1,
        "23a280718ea4cee4",
        "toolchains/debian_nvcc/maker.py",
    ),
    "given": (
        1,
        "e9aea8f6c0a8a462",
        "toolchains/torch_wheel/given.py",
    ),
    "languages": (
        1,
        "9dfb849635c51e59",
        "languages/environment.py",
    ),
}
CURRENT = {
    "cuda": cuda._LAYOUT,
    "headers": headers._LAYOUT,
    "torch": TORCH.layout,
    "tvm-ffi": TVM_FFI.layout,
    "debian-nvcc": maker._LAYOUT,
    "given": given._LAYOUT,
    "languages": environment._LAYOUT,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_changed_maker_is_decided_on(name: str) -> None:
    layout, known, *modules = LAYOUTS[name]
    found = code_digest(*(PACKAGE / str(module) for module in modules))[:16]
    words = (
        "if the same archives now become other files, raise the layout; then write both down here"
    )
    assert (CURRENT[name], found) == (layout, known), f"{modules}: {words}"


def test_what_is_made_here_is_named_by_its_makers_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = pins().recipe.name
    monkeypatch.setattr("kbuild.toolchains.debian_hip.pins.code_digest", lambda *_: "another")
    assert pins().recipe.name != before
