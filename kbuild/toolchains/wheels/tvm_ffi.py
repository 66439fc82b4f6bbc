"""What is compiled and linked against of one TVM-FFI release, from one wheel.

The C++ headers call the C functions of `libtvm_ffi.so` and nothing else of it; neither depends on
the interpreter that the wheel is for. The library is a link stub: with `tvm_ffi` imported, the real
one is in the process already, and the loader finds it by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbuild.toolchains.wheels.stubs import StubMaker, declared
from kbuild.toolchains.wheels.tree import Tree

PROJECT = "apache-tvm-ffi"
LIBRARY = "libtvm_ffi.so"
INCLUDE_FOLDER = "tvm_ffi/include"
LINK_FOLDER = "link"
_WANTED = re.compile(
    r"tvm_ffi/include/.+|[^/]+\.dist-info/(METADATA|(licenses/)?(LICENSE|NOTICE).*)"
)
_FUNCTION = re.compile(r"TVMFFI[A-Z]\w*")


def place(name: str) -> str | None:
    """Which members of the wheel are kept; see `archive.Place`."""
    return name if _WANTED.fullmatch(name) else None


def c_functions(include: Path) -> Iterator[str]:
    """What the headers declare of the C interface."""
    return filter(_FUNCTION.fullmatch, declared(sorted(include.rglob("*_api.h"))))


def _complete(root: Path, stubs: StubMaker) -> dict[str, Any]:
    stubs.make(root / LINK_FOLDER / LIBRARY, LIBRARY, c_functions(root / INCLUDE_FOLDER))
    return {}


TVM_FFI = Tree("tvm-ffi", 1, place, _complete)
