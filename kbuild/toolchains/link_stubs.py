"""Link stubs: shared libraries with a name, the symbols that headers declare, and no code.

A shared object may have undefined symbols, so what a library defines hardly matters when one is
linked against it; but where the linker drops libraries that resolve nothing (`--as-needed` is the
default of some distributions), a stub has to define what is called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.temporary import environment_with_tmpdir

_CALLED = re.compile(r"\b[A-Za-z_]\w*(?=\s*\()")


@dataclass(frozen=True)
class LinkStubMaker:
    """Makes stubs with the host's compiler."""

    cxx: Path
    runner: Runner

    def make(self, file: Path, soname: str, symbols: Iterable[str] = ()) -> None:
        """Write one stub.

        Raises:
            ToolchainError: the compiler failed.
        """
        file.parent.mkdir(parents=True, exist_ok=True)
        # No build id, no compiler's comment: the bytes depend on the names alone.
        flags = ("-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{soname}")
        command = (str(self.cxx), *flags, "-x", "assembler", "-", "-o", str(file))
        done = self.runner.run(
            command, env=environment_with_tmpdir(file.parent), stdin=_assembly(sorted(symbols))
        )
        if not done.ok:
            raise ToolchainError(
                f"`{self.cxx}` cannot make the link stub {soname}: {done.output.strip()[-300:]}",
                hint="the toolchain from wheels needs GNU g++ or clang++ with a linker",
            )

    def make_libraries(self, folder: Path, sonames: Mapping[str, Collection[str]]) -> None:
        """Write a stub per soname, with its symbols and the `libX.so` link beside `libX.so.N`."""
        for soname, symbols in sonames.items():
            self.make(folder / soname, soname, symbols)
            create_linker_name(folder / soname)


def create_linker_name(library: Path) -> None:
    """Link `libX.so` to `libX.so.N`, as the linker looks for it."""
    base, dot, version = library.name.partition(".so.")
    link = library.with_name(f"{base}.so")
    if dot and version and not link.exists():
        link.symlink_to(library.name)


def declared_functions(headers: Iterable[Path]) -> set[str]:
    """Everything that the headers write like a function: its name, then a parenthesis."""
    return {name for path in headers for name in _CALLED.findall(path.read_text("utf-8"))}


def assign_symbols(names: Iterable[str], sonames: Iterable[str]) -> dict[str, set[str]]:
    """soname -> the names that start as the library does; the longest start wins.

    `cublasLtMatmul` belongs to `libcublasLt.so.13`, `cublasCreate_v2` to `libcublas.so.13`.
    """
    stems = {soname.removeprefix("lib").partition(".so")[0]: soname for soname in sonames}
    shares: dict[str, set[str]] = {soname: set() for soname in sorted(stems.values())}
    for name in names:
        owners = [stem for stem in stems if name.startswith(stem)]
        if owners:
            shares[stems[max(owners, key=len)]].add(name)
    return shares


def _assembly(symbols: Iterable[str]) -> str:
    lines = (f".globl {name}\n.type {name}, %function\n{name}:\n" for name in symbols)
    return f'.text\n{"".join(lines)}.byte 0\n.section .note.GNU-stack,"",%progbits\n'
