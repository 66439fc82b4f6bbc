"""A kernel for TVM-FFI offers functions, and takes from the runtime what every release has.

A variant is named after `major.minor`, and the client loads it with every release of that. The C
functions of `libtvm_ffi.so` became more over time (`data/tvm_ffi_api.json`): a kernel that takes
one of the newer ones does not load with older releases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import LibrarySymbols, first_names, is_kernel, library_symbols
from kbuild.checks.policies import load_data
from kbuild.checks.readers.object_files import object_symbols

FUNCTION = "__tvm_ffi_"
_ABOUT = ("__tvm_ffi__metadata_", "__tvm_ffi__doc_", "__tvm_ffi__library")
"""Prefixes of symbols that describe functions and libraries, and are no functions."""
_DATA = "tvm_ffi_api"
_RUNTIME = "TVMFFI"


@CHECKS.add
class TvmFfiAbiCheck(LibraryCheck):
    """Dynamic symbols of the extension, against the releases of the runtime."""

    name = "tvm-ffi-abi"
    summary = (
        "TVM-FFI kernels export functions, and load with every release of their `major.minor`."
    )

    def applies(self, output: Output) -> bool:
        """Variants for TVM-FFI."""
        variant = output.variant
        return variant is not None and variant.framework == "tvm-ffi" and super().applies(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding when there is no function, and one per release that is too new."""
        for names in library_symbols(output):
            if is_kernel(names.where, output):
                yield from self._functions(names)
            yield from self._too_new(names, output)

    def _functions(self, names: LibrarySymbols) -> Iterator[Finding]:
        if not any(n.startswith(FUNCTION) and not n.startswith(_ABOUT) for n in names.exported):
            what = f"exports no function: no `{FUNCTION}*`, which `tvm_ffi.load_module` looks for"
            hint = "`TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function)` in the binding exports one"
            yield Finding(self.name, "error", names.where, what, hint)

    def _too_new(self, names: LibrarySymbols, output: Output) -> Iterator[Finding]:
        newer: dict[str, list[str]] = defaultdict(list)
        for name in (name for name in names.undefined if name.startswith(_RUNTIME)):
            newer[runtime_functions().get(name, "")].append(name)
        for since, symbols in sorted(newer.items()):
            if since != load_data(_DATA)["oldest"]:
                users = object_symbols(output.object_tree).users(symbols)
                what, hint = _message(since, symbols)
                yield Finding(self.name, "warning", names.where, what, hint, tuple(symbols), users)


def _message(since: str, names: list[str]) -> tuple[str, str]:
    """The fault and the hint."""
    if not since:
        what = f"{first_names(names)}: not in any TVM-FFI up to {load_data(_DATA)['newest']}"
        return what, "use a function that the headers of a release declare"
    what = f"{first_names(names)} came with TVM-FFI {since}: older releases cannot load it"
    return what, "avoid it, so that every release in the variant's name can load the kernel"


@lru_cache(maxsize=1)
def runtime_functions() -> Mapping[str, str]:
    """C function of the runtime -> the release that brought it."""
    since = load_data(_DATA)["since"]
    return {name: release for release, names in since.items() for name in names}
