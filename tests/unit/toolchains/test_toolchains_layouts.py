"""Entries of the store that are unpacked from pinned archives are named by a layout's number.

Their makers' code is no part of the name: gigabytes would be fetched again for every comment. So a
change of that code has to be looked at here, and decided on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kbuild
from kbuild.dsl import environment
from kbuild.plugins.debian import nvcc
from kbuild.system.code_digest import code_digest
from kbuild.toolchains.wheels import cuda
from kbuild.toolchains.wheels.frameworks import TORCH, TVM_FFI

PACKAGE = Path(kbuild.__file__).parent
LAYOUTS: dict[str, tuple[int | str, ...]] = {
    "cuda": (1, "a1646be2a43d71fd", "toolchains/wheels/cuda.py", "toolchains/link_stubs.py"),
    "torch": (1, "16ef903a913b14c9", "toolchains/wheels/frameworks.py", "toolchains/link_stubs.py"),
    "tvm-ffi": (
        1,
        "16ef903a913b14c9",
        "toolchains/wheels/frameworks.py",
        "toolchains/link_stubs.py",
    ),
    "debian-nvcc": (2, "c75db3e4e19e1400", "plugins/debian/nvcc.py"),
    "languages": (1, "dd7d472e16fdb597", "dsl/environment.py"),
}
CURRENT = {
    "cuda": cuda._LAYOUT,
    "torch": TORCH.layout,
    "tvm-ffi": TVM_FFI.layout,
    "debian-nvcc": nvcc._LAYOUT,
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
