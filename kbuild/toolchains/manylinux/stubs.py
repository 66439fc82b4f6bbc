"""Shared libraries without code: what a linker must see of a policy's system, and no more.

A stub exports the library's symbols with their versions; a link against it records exactly what a
link on the policy's own system would. It is assembled from generated source, because versions are
the assembler's and the linker's to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner
from kbuild.scratch import within
from kbuild.toolchains.manylinux.symbols import LIBRARIES, Interface, Symbol

NONSHARED = "libc_nonshared.a"
_SECTIONS = {
    "function": ".text",
    "object": ".data",
    "tls_object": '.section .tbss,"awT",@nobits',
}
_LAST = '\t.section .note.GNU-stack,"",@progbits\n'


def assembly(symbols: Sequence[Symbol]) -> str:
    """Assembler source that exports the symbols; the newest version of a name is its default."""
    newest = {symbol.name: symbol.version for symbol in sorted(symbols, key=_by_version)}
    lines = [
        line
        for number, symbol in enumerate(symbols)
        for line in _definition(symbol, f"s{number}", default=newest[symbol.name])
    ]
    return "".join(f"{line}\n" for line in lines) + _LAST


def _definition(symbol: Symbol, label: str, *, default: str) -> Iterator[str]:
    mark = "@@" if symbol.version == default else "@"
    yield f"\t{_SECTIONS[symbol.kind]}"
    yield f"\t.globl {label}"
    yield f"\t.type {label}, @{symbol.kind}"
    yield f"\t.size {label}, {symbol.size}"
    yield f"{label}:\t.zero {symbol.size or 1}"
    yield f"\t.symver {label}, {symbol.name}{mark}{symbol.version}, remove"


def version_script(symbols: Iterable[Symbol]) -> str:
    """The linker's list of versions, oldest first; the assembly says which symbol has which."""
    versions = sorted({symbol.version for symbol in symbols}, key=_order)
    return "".join(f"{version} {{ }};\n" for version in versions)


def _by_version(symbol: Symbol) -> tuple[str, tuple[int, ...]]:
    return _order(symbol.version)


def _order(version: str) -> tuple[str, tuple[int, ...]]:
    family, _, number = version.partition("_")
    return family, tuple(int(part) for part in re.findall(r"\d+", number))


def link_scripts(loader: str) -> Mapping[str, str]:
    """Files that stand for more than one library, as glibc installs them.

    `atexit` and `pthread_atfork` live in a static part of libc, `__tls_get_addr` in the loader.
    """
    return {
        "libc.so": f"GROUP ( libc.so.6 {NONSHARED} AS_NEEDED ( {loader} ) )\n",
        "libm.so": "GROUP ( libm.so.6 AS_NEEDED ( libmvec.so.1 ) )\n",
    }


@dataclass(frozen=True)
class StubWriter:
    """Makes all stubs of one interface in one folder."""

    interface: Interface
    cxx: Path
    runner: Runner

    def write(self, folder: Path, scratch: Path) -> None:
        """Put the libraries, and the names that `-l` looks for, into `folder`.

        Raises:
            ToolchainError: the compiler cannot make them.
        """
        for soname, symbols in self.interface.libraries.items():
            self._link(soname, symbols, folder, scratch)
        scripts = link_scripts(self.interface.loader)
        for soname, name in LIBRARIES.items():
            if soname in self.interface.libraries:
                _name(folder / name, soname, scripts.get(name))

    def _link(self, soname: str, symbols: Sequence[Symbol], folder: Path, scratch: Path) -> None:
        source, script = scratch / f"{soname}.s", scratch / f"{soname}.map"
        source.write_text(assembly(symbols))
        script.write_text(version_script(symbols))
        flags = ("-shared", "-nostdlib", f"-Wl,-soname,{soname},--version-script,{script}")
        command = (str(self.cxx), *flags, "-o", str(folder / soname), str(source))
        done = self.runner.run(command, env=within(scratch))
        if not done.ok:
            raise ToolchainError(f"the link stub of {soname} cannot be made: {done.output[-500:]}")


def _name(path: Path, soname: str, script: str | None) -> None:
    if script is None or (path.name == "libm.so" and not (path.parent / "libmvec.so.1").exists()):
        path.symlink_to(soname)
    else:
        path.write_text(script)
