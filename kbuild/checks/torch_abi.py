"""A kernel of Torch's stable ABI takes from Torch only what its oldest release has and keeps.

These are the functions of the C shim, each since the release in `data/torch_shims.json`. Torch's
C++ classes change with every release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import LibrarySymbols, first_names, library_symbols
from kbuild.checks.policies import load_data
from kbuild.checks.readers.object_files import ObjectSymbols, object_symbols
from kbuild.checks.readers.symbols import scope_part
from kbuild.system.version import Version

_DATA = "torch_shims"
_SHIMS = ("aoti_torch_", "torch_")
_PYTHON = "THP"
_UNSTABLE = ("2at", "3c10", "5torch", "6caffe2")
_STABLE = ("5torch6stable", "5torch10headeronly")
_HINT_CXX = "use `torch::stable` and `torch/headeronly`; `kbuild abi-advice` lists the places"


@CHECKS.add
class TorchAbiCheck(LibraryCheck):
    """Undefined symbols of the dynamic table against the shim's releases."""

    name = "torch-abi"
    summary = "Stable-ABI kernels use only the C shim that their oldest Torch has."

    def applies(self, output: Output) -> bool:
        """Stable-ABI variants, and those for which a stable ABI is requested."""
        return output.limits.torch_stable_abi is not None and super().applies(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per release that is too new, and one for what is not stable at all."""
        floor = output.limits.torch_stable_abi
        if floor is None:
            return
        for names in library_symbols(output):
            objects = object_symbols(output.object_tree)
            yield from self._too_new(names, floor, objects)
            yield from self._unstable(names, objects)

    def _too_new(
        self, library: LibrarySymbols, floor: Version, objects: ObjectSymbols
    ) -> Iterator[Finding]:
        newer: dict[Version | None, list[str]] = defaultdict(list)
        for name in (name for name in library.undefined if name.startswith(_SHIMS)):
            since = shims().get(name)
            if since is None or since > floor:
                newer[since].append(name)
        for since, names in sorted(newer.items(), key=lambda item: str(item[0])):
            users = objects.users(names)
            if since is None:
                newest = load_data(_DATA)["newest"]
                what = f"{first_names(names)}: not in the shim of any Torch up to {newest}"
                hint = "use a function that the headers of a release declare"
                yield Finding(self.name, "warning", library.where, what, hint, tuple(names), users)
                continue
            what = f"{first_names(names)} came with Torch {since}, after {floor}"
            hint = (
                f"compile with `-DTORCH_TARGET_VERSION` of {floor}, which hides newer functions, "
                f"or raise the oldest Torch to {since}"
            )
            yield Finding(self.name, "error", library.where, what, hint, tuple(names), users)

    def _unstable(self, library: LibrarySymbols, objects: ObjectSymbols) -> Iterator[Finding]:
        names = [name for name in library.undefined if is_unstable(name)]
        if names:
            what = f"takes {first_names(names)} from Torch's C++, which has no stable ABI"
            users = objects.users(names)
            yield Finding(self.name, "error", library.where, what, _HINT_CXX, tuple(names), users)


def is_unstable(name: str) -> bool:
    """True for a symbol of Torch that the next release may change."""
    begin = scope_part(name)
    if begin is None:
        return name.startswith(_PYTHON)
    return begin.startswith(_UNSTABLE) and not begin.startswith(_STABLE)


@lru_cache(maxsize=1)
def shims() -> Mapping[str, Version]:
    """Function of the C shim -> the release that brought it; 0 when it is older than the data."""
    return {
        name: Version((0,)) if release == "base" else Version.parse(release)
        for release, names in load_data(_DATA)["since"].items()
        for name in names
    }
