"""One extension for every CPython from a floor on: the stable ABI only, found under its own name.

The stable ABI is the `abi3info` package's copy of CPython's `Misc/stable_abi.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import (
    ABI3_SUFFIX,
    LibrarySymbols,
    base_name,
    is_extension,
    library_symbols,
    metadata_of,
)
from kbuild.checks.policies import DEFAULT_PYTHON_ABI
from kbuild.checks.readers.object_files import object_symbols
from kbuild.system.version import Version

PREFIXES = ("Py", "_Py")


@CHECKS.add
class PythonAbiCheck(LibraryCheck):
    """Undefined `Py*` symbols of the dynamic table; `PyInit_` and the file's name."""

    name = "python-abi"
    summary = (
        f"Extensions use CPython's stable ABI of {DEFAULT_PYTHON_ABI} and export their `PyInit_`."
    )

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per symbol, and per file with a wrong name."""
        for names in library_symbols(output):
            yield from self._symbols(names, output)
            if is_extension(names.where, output) and _claims(names, output):
                yield from self._naming(names)

    def _symbols(self, names: LibrarySymbols, output: Output) -> Iterator[Finding]:
        floor = output.limits.python_abi or DEFAULT_PYTHON_ABI
        hexadecimal = f"0x{floor.major:02X}{floor.minor:02X}0000"
        hint = f"compile with `-DPy_LIMITED_API={hexadecimal}` and use what it declares"
        for name in names.undefined:
            if name.startswith(PREFIXES) and (fault := fault_of(name, floor)):
                users = object_symbols(output.object_tree).users((name,))
                what = f"`{name}` {fault}"
                yield Finding(self.name, "error", names.where, what, hint, (name,), users)

    def _naming(self, names: LibrarySymbols) -> Iterator[Finding]:
        where = names.where
        wanted = f"PyInit_{base_name(where)}"
        offered = [name for name in names.exported if name.startswith("PyInit_")]
        if wanted not in offered:
            instead = f" (it exports `{offered[0]}`)" if offered else ""
            hint = "write `REGISTER_EXTENSION(TORCH_EXTENSION_NAME)` in the bindings"
            yield Finding(self.name, "error", where, f"does not export `{wanted}`{instead}", hint)
        if not where.endswith(ABI3_SUFFIX):
            hint = f"name it `{base_name(where)}{ABI3_SUFFIX}`"
            yield Finding(self.name, "error", where, f"is not named `*{ABI3_SUFFIX}`", hint)


def _claims(names: LibrarySymbols, output: Output) -> bool:
    """False for a library on its own that neither its name nor a symbol makes an extension."""
    if output.alone is None or metadata_of(output) is not None:
        return True
    return names.where.endswith(ABI3_SUFFIX) or any(
        name.startswith("PyInit_") for name in names.exported
    )


def fault_of(name: str, floor: Version) -> str | None:
    """The reason that a symbol of CPython is outside the stable ABI; None when it is not."""
    added = stable_since(name)
    if added is None:
        return "is not in CPython's stable ABI"
    return f"came to the stable ABI in {added}, after {floor}" if added > floor else None


def stable_since(name: str) -> Version | None:
    """The CPython release that brought a symbol to the stable ABI; None when it is not in it."""
    from abi3info import DATAS, FUNCTIONS
    from abi3info.models import Symbol

    entry = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
    return Version((entry.added.major, entry.added.minor)) if entry else None
