"""One extension for every CPython from 3.9 on: only the stable ABI, found under its own name.

The stable ABI is the `abi3info` package's copy of CPython's `Misc/stable_abi.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.elf import ElfFile
from kbuild.checks.readers.libraries import (
    ABI3_SUFFIX,
    base_name,
    elf_libraries,
    has_libraries,
    metadata_of,
)
from kbuild.version import Version

FLOOR = Version((3, 9))
PREFIXES = ("Py", "_Py")


@CHECKS.add
class PythonAbi(Check):
    """Undefined `Py*` symbols of the dynamic table; `PyInit_` and the file's name."""

    name = "python-abi"
    summary = f"Extensions use CPython's stable ABI of {FLOOR} and export their `PyInit_`."
    group = "abi"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per symbol, and per file with a wrong name."""
        for where, elf in elf_libraries(output):
            for symbol in sorted({symbol.name for symbol in elf.undefined}):
                if symbol.startswith(PREFIXES) and (fault := _fault(symbol)):
                    hint = "compile with `-DPy_LIMITED_API=0x03090000` and use what it declares"
                    yield Finding(self.name, "error", where, f"`{symbol}` {fault}", hint)
            if _is_extension(where, elf, output):
                yield from self._naming(where, elf)

    def _naming(self, where: str, elf: ElfFile) -> Iterator[Finding]:
        wanted = f"PyInit_{base_name(where)}"
        offered = sorted(s.name for s in elf.exported if s.name.startswith("PyInit_"))
        if wanted not in offered:
            instead = f" (it exports `{offered[0]}`)" if offered else ""
            hint = "write `REGISTER_EXTENSION(TORCH_EXTENSION_NAME)` in the bindings"
            yield Finding(self.name, "error", where, f"does not export `{wanted}`{instead}", hint)
        if not where.endswith(ABI3_SUFFIX):
            hint = f"name it `{base_name(where)}{ABI3_SUFFIX}`"
            what = f"is not named `*{ABI3_SUFFIX}`"
            yield Finding(self.name, "error", where, what, hint)


def _is_extension(where: str, elf: ElfFile, output: Output) -> bool:
    """True for the library that Python imports; TVM-FFI loads its library without Python."""
    if "/" in where or (output.variant and output.variant.framework == "tvm-ffi"):
        return False
    metadata = metadata_of(output)
    if metadata is None and output.alone:
        return where.endswith(ABI3_SUFFIX) or any(
            symbol.name.startswith("PyInit_") for symbol in elf.exported
        )
    return metadata is None or base_name(where) == metadata.id


def _fault(name: str) -> str | None:
    """Why a symbol of CPython breaks the promise; None when it does not."""
    from abi3info import DATAS, FUNCTIONS
    from abi3info.models import Symbol

    entry = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
    if entry is None:
        return "is not in CPython's stable ABI"
    added = Version((entry.added.major, entry.added.minor))
    return f"came to the stable ABI in {added}, after {FLOOR}" if added > FLOOR else None
