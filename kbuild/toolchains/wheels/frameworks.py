"""Store entries made of one wheel each: Torch and TVM-FFI.

Torch's headers depend neither on the interpreter nor on the CUDA release, so the lock has one
digest for those of all its wheels; only a CPU wheel lacks some. Libraries become link stubs, so
that the result is the same whichever wheel was there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.system.errors import ToolchainError
from kbuild.system.store import Recipe
from kbuild.toolchains.link_stubs import LinkStubMaker, declared_functions
from kbuild.toolchains.wheels.lock import LockedRelease, LockedWheel, headers_digest
from kbuild.toolchains.wheels.package_index import WheelFetcher
from kbuild.toolchains.wheels.wheel_file import MemberDestination, record_digest


@dataclass(frozen=True)
class WheelTree:
    """The wheels of one distribution, and the files that are taken from them."""

    kind: str
    layout: int
    """Counts changes of what is made of the same wheel."""
    place: MemberDestination
    complete: Callable[[Path, LinkStubMaker], Mapping[str, Any]]
    """Adds what no wheel has to the unpacked members; gives what there is to say of that."""

    def recipes(self, locked: LockedRelease) -> tuple[Recipe, ...]:
        """The recipes that an installed entry may have: one for each wheel."""
        return tuple(self.recipe(locked.version, wheel) for wheel in locked.wheels)

    def recipe(self, version: str, wheel: LockedWheel) -> Recipe:
        """The recipe for one wheel."""
        return Recipe(self.kind, version, {"layout": self.layout, "wheel": wheel.sha256})


@dataclass(frozen=True)
class WheelTreeMaker:
    """Makes the tree of one release."""

    tree: WheelTree
    locked: LockedRelease
    fetcher: WheelFetcher
    stubs: LinkStubMaker

    @property
    def recipe(self) -> Recipe:
        """Recipe of the store entry: the wheel, and the files that are taken from it.

        Raises:
            ToolchainError: there is none.
        """
        wheel, _ = self.fetcher.index.locate(self.locked.wheels)
        return self.tree.recipe(self.locked.version, wheel)

    def make(self, root: Path) -> dict[str, Any]:
        """Fill the tree; see `kbuild.system.store.MakeEntry`.

        Raises:
            ToolchainError: the headers are not those that the lock names.
        """
        source = self.fetcher.unpack(self.locked.wheels, root, self.tree.place)
        if self.locked.headers is not None:
            self._refuse_other_headers(root, source.filename)
        return {"sources": [source.to_json()], **self.tree.complete(root, self.stubs)}

    def _refuse_other_headers(self, root: Path, wheel: str) -> None:
        digests = {
            path.relative_to(root).as_posix(): record_digest(hashlib.sha256(path.read_bytes()))
            for path in root.rglob("*")
            if path.is_file()
        }
        digest = headers_digest(digests)
        if digest != self.locked.headers:
            raise ToolchainError(
                f"{wheel} has other headers than the lock names for {self.locked.version}: "
                f"sha256 {digest}",
                hint="remove the file: the index serves another one under that name",
            )


_TORCH_MEMBERS = re.compile(
    r"torch/(include|share/cmake)/.+|torch/version\.py|torch/utils/hipify/[^/]+\.py"
    r"|torch/lib/lib(c10|c10_cuda|c10_hip|c10_xpu|torch)\.so|torch-[^/]+\.dist-info/METADATA"
)
TORCH_LIBRARIES = ("torch", "torch_cpu", "c10", "torch_cuda", "c10_cuda", "torch_hip", "c10_hip")
TORCH_LINK_FOLDER = "link"
"""Folder of the stubs; `torch/lib` holds the small real libraries, for looking symbols up."""


def torch_include_folders(root: Path) -> tuple[Path, ...]:
    """The folders of `torch.utils.cpp_extension.include_paths`."""
    include = root / "torch" / "include"
    return include, include / "torch" / "csrc" / "api" / "include"


def torch_destination(name: str) -> str | None:
    """The place of a member of a Torch wheel; see `MemberDestination`."""
    return name if _TORCH_MEMBERS.fullmatch(name) else None


def _add_torch_stubs(root: Path, stubs: LinkStubMaker) -> dict[str, Any]:
    stubs.make_libraries(
        root / TORCH_LINK_FOLDER, {f"lib{name}.so": () for name in TORCH_LIBRARIES}
    )
    return {}


TORCH = WheelTree("torch", 1, torch_destination, _add_torch_stubs)


TVM_FFI_PROJECT = "apache-tvm-ffi"
TVM_FFI_LIBRARY = "libtvm_ffi.so"
TVM_FFI_INCLUDE_FOLDER = "tvm_ffi/include"
TVM_FFI_LINK_FOLDER = "link"
_TVM_FFI_MEMBERS = re.compile(
    r"tvm_ffi/include/.+|[^/]+\.dist-info/(METADATA|(licenses/)?(LICENSE|NOTICE).*)"
)
_TVM_FFI_FUNCTION = re.compile(r"TVMFFI[A-Z]\w*")


def tvm_ffi_destination(name: str) -> str | None:
    """The place of a member of the wheel; see `MemberDestination`."""
    return name if _TVM_FFI_MEMBERS.fullmatch(name) else None


def tvm_ffi_functions(include: Path) -> Iterator[str]:
    """The functions of the C interface that the headers declare."""
    return filter(_TVM_FFI_FUNCTION.fullmatch, declared_functions(sorted(include.rglob("*_api.h"))))


def _add_tvm_ffi_stub(root: Path, stubs: LinkStubMaker) -> dict[str, Any]:
    stubs.make(
        root / TVM_FFI_LINK_FOLDER / TVM_FFI_LIBRARY,
        TVM_FFI_LIBRARY,
        tvm_ffi_functions(root / TVM_FFI_INCLUDE_FOLDER),
    )
    return {}


TVM_FFI = WheelTree("tvm-ffi", 1, tvm_ffi_destination, _add_tvm_ffi_stub)
