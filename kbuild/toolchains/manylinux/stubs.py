"""Link stubs of a manylinux policy's system libraries.

Made from the lists of what they export.

A stub exports the library's symbols with their versions, so a link against it records what a link
on the policy's own system would. `data/<policy>-<cpu>.json.gz` holds library -> version ->
symbols, written by `scripts/manylinux_symbols.py`: `name` (function), `name=<bytes>` (data) or
`name~<bytes>` (thread-local).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.temporary import environment_with_tmpdir

SymbolKind = Literal["function", "object", "tls_object"]
DEFAULT_POLICY = "manylinux_2_28"
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
LINKER_NAMES: Mapping[str, str] = {
    "libc.so.6": "libc.so",
    "libm.so.6": "libm.so",
    "libmvec.so.1": "libmvec.so",
    "libpthread.so.0": "libpthread.so",
    "libdl.so.2": "libdl.so",
    "librt.so.1": "librt.so",
    "libresolv.so.2": "libresolv.so",
    "libutil.so.1": "libutil.so",
    "libgcc_s.so.1": "libgcc_s.so",
    "libstdc++.so.6": "libstdc++.so",
}
"""Name at run time -> name that `-l` finds."""
_ENTRY = re.compile(r"(?P<name>[^=~]+)(?:(?P<mark>[=~])(?P<size>\d+))?")
_KINDS: Mapping[str | None, SymbolKind] = {None: "function", "=": "object", "~": "tls_object"}


@dataclass(frozen=True)
class VersionedSymbol:
    """One exported symbol of one version."""

    name: str
    version: str
    kind: SymbolKind = "function"
    size: int = 0
    """Bytes of data; 0 for functions."""


@dataclass(frozen=True)
class PolicyInterface:
    """The symbols that the policy's system offers to programs of one CPU."""

    policy: str
    cpu: str
    libraries: Mapping[str, tuple[VersionedSymbol, ...]]

    @property
    def names(self) -> frozenset[str]:
        """Every symbol's name."""
        return frozenset(symbol.name for own in self.libraries.values() for symbol in own)

    @property
    def loader(self) -> str:
        """The dynamic linker, which defines a few symbols of its own."""
        return LOADERS[self.cpu]


def symbols_file(policy: str, cpu: str) -> Path:
    """The lists of one policy and CPU."""
    return Path(__file__).with_name("data") / f"{policy}-{cpu}.json.gz"


@lru_cache(maxsize=4)
def policy_interface(policy: str, cpu: str) -> PolicyInterface:
    """Read the lists.

    Raises:
        ToolchainError: there are none for this policy and CPU.
    """
    try:
        text = gzip.decompress(symbols_file(policy, cpu).read_bytes())
    except FileNotFoundError:
        raise ToolchainError(
            f"no link stubs for {policy} on {cpu}",
            hint=f"there are stubs of {DEFAULT_POLICY} for {' and '.join(LOADERS)}",
        ) from None
    libraries = json.loads(text)["libraries"]
    return PolicyInterface(
        policy, cpu, {name: tuple(_symbols(own)) for name, own in libraries.items()}
    )


def _symbols(versions: Mapping[str, Iterable[str]]) -> Iterator[VersionedSymbol]:
    for version, entries in versions.items():
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise ValueError(f"`{entry}` is not a symbol")
            yield VersionedSymbol(
                match["name"], version, _KINDS[match["mark"]], int(match["size"] or 0)
            )


LIBC_NONSHARED = "libc_nonshared.a"
_SECTIONS = {"function": ".text", "object": ".data", "tls_object": '.section .tbss,"awT",@nobits'}
_STACK_NOTE = '\t.section .note.GNU-stack,"",@progbits\n'


def assembly(symbols: Sequence[VersionedSymbol]) -> str:
    """Assembler source that exports the symbols; the newest version of a name is its default."""
    newest = {
        symbol.name: symbol.version
        for symbol in sorted(symbols, key=lambda symbol: _version_key(symbol.version))
    }
    lines = [
        line
        for number, symbol in enumerate(symbols)
        for line in _definition(symbol, f"s{number}", default=newest[symbol.name])
    ]
    return "".join(f"{line}\n" for line in lines) + _STACK_NOTE


def _definition(symbol: VersionedSymbol, label: str, *, default: str) -> Iterator[str]:
    mark = "@@" if symbol.version == default else "@"
    yield f"\t{_SECTIONS[symbol.kind]}"
    yield f"\t.globl {label}"
    yield f"\t.type {label}, @{symbol.kind}"
    yield f"\t.size {label}, {symbol.size}"
    yield f"{label}:\t.zero {symbol.size or 1}"
    yield f"\t.symver {label}, {symbol.name}{mark}{symbol.version}, remove"


def version_script(symbols: Iterable[VersionedSymbol]) -> str:
    """The linker's list of versions, oldest first; the assembly says which symbol has which."""
    versions = sorted({symbol.version for symbol in symbols}, key=_version_key)
    return "".join(f"{version} {{ }};\n" for version in versions)


def _version_key(version: str) -> tuple[str, tuple[int, ...]]:
    family, _, number = version.partition("_")
    return family, tuple(int(part) for part in re.findall(r"\d+", number))


def link_scripts(loader: str) -> Mapping[str, str]:
    """Files that stand for more than one library, as glibc installs them.

    `atexit` and `pthread_atfork` live in a static part of libc, `__tls_get_addr` in the loader.
    """
    return {
        "libc.so": f"GROUP ( libc.so.6 {LIBC_NONSHARED} AS_NEEDED ( {loader} ) )\n",
        "libm.so": "GROUP ( libm.so.6 AS_NEEDED ( libmvec.so.1 ) )\n",
    }


@dataclass(frozen=True)
class PolicyStubWriter:
    """Makes all stubs of one interface in one folder."""

    interface: PolicyInterface
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
        for soname, name in LINKER_NAMES.items():
            if soname in self.interface.libraries:
                _create_linker_name(folder / name, soname, scripts.get(name))

    def _link(
        self, soname: str, symbols: Sequence[VersionedSymbol], folder: Path, scratch: Path
    ) -> None:
        source, script = scratch / f"{soname}.s", scratch / f"{soname}.map"
        source.write_text(assembly(symbols))
        script.write_text(version_script(symbols))
        flags = ("-shared", "-nostdlib", f"-Wl,-soname,{soname},--version-script,{script}")
        command = (str(self.cxx), *flags, "-o", str(folder / soname), str(source))
        done = self.runner.run(command, env=environment_with_tmpdir(scratch))
        if not done.ok:
            raise ToolchainError(f"the link stub of {soname} cannot be made: {done.output[-500:]}")


def _create_linker_name(path: Path, soname: str, script: str | None) -> None:
    if script is None or (path.name == "libm.so" and not (path.parent / "libmvec.so.1").exists()):
        path.symlink_to(soname)
    else:
        path.write_text(script)
