"""Stubs of a policy's libraries, and facts about the host compiler that links against them.

The facts are its C library's release, and the static parts of its libraries.
"""

from __future__ import annotations

import gzip
import hashlib
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
from kbuild.system.version import Version
from kbuild.toolchains.facts import FactCache, Facts

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
# Without this section, the linker takes the object to need an executable stack.
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
    # `remove` drops the label, which the stub would export beside the symbol.
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


INSTALL_STATIC_HINT = (
    "install the compiler's static C++ library: `apt install libstdc++-{gcc}-dev`, "
    "`dnf install libstdc++-static`, or your distribution's package with libstdc++.a"
)
_MACRO = re.compile(r"#define (\w+) (\S+)")
_FEATURES = re.compile(r"^\.* ?(/\S+/features\.h)$", re.MULTILINE)
_MACROS = ("__GLIBC__", "__GLIBC_MINOR__", "__x86_64__", "__aarch64__", "__VERSION__", "__GNUC__")
_STATIC_LIBRARY = "libstdc++.a"
_GNU_AS = re.compile(r"GNU assembler.*?(\d+\.\d+)")
OLDEST_ASSEMBLER = Version((2, 35))
"""First GNU as that can give a symbol a version and no other name (`.symver`, `remove`)."""


@dataclass(frozen=True)
class LinkedCompiler:
    """A C++ compiler, as far as the link is concerned."""

    program: Path
    glibc: tuple[int, int]
    """Release of the C library that it compiles against."""
    cpu: str
    libstdcxx: Path
    """Path of its libstdc++.a."""
    nonshared: Path | None
    """The static part of its libc."""
    fingerprint: str
    """Changes with any of the above and with their contents."""


def glibc_release(cxx: Path, cache: FactCache, runner: Runner) -> tuple[int, int] | None:
    """Release of the C library that the compiler compiles against; None when it is not glibc."""
    return _release(cache.get(f"c library of {cxx}", lambda: _ask_macros(cxx, runner)))


@dataclass(frozen=True)
class LinkRequirements:
    """The inputs of a link environment, as far as they are on this machine."""

    glibc: tuple[int, int] | None
    """The release, see `glibc_release`."""
    gcc: str
    """Major release of the GCC whose C++ library is used; empty when nobody knows."""
    libstdcxx: Path | None
    assembler: Version | None
    """Release of GNU as; None when it is another assembler."""

    def is_old_enough(self, policy: str) -> bool:
        """See `is_old_enough`."""
        return is_old_enough(self.glibc, policy)


def is_old_enough(glibc: tuple[int, int] | None, policy: str) -> bool:
    """True when everything that is linked with this glibc exists on the policy's systems."""
    _, major, minor = policy.split("_")
    return glibc is not None and glibc <= (int(major), int(minor))


def link_requirements(cxx: Path, cache: FactCache, runner: Runner) -> LinkRequirements:
    """Ask the compiler; nothing is made, and nothing missing is an error."""
    program = runner.run((str(cxx), "-print-prog-name=as")).output.strip()
    done = runner.run((program or "as", "--version"))
    match = _GNU_AS.search(done.output) if done.ok else None
    return LinkRequirements(
        glibc_release(cxx, cache, runner),
        _gcc(cxx, runner),
        _file(_STATIC_LIBRARY, cxx, runner),
        (Version.parse(match[1]) if match else None),
    )


def _gcc(cxx: Path, runner: Runner) -> str:
    """Release of GCC, from the folder of its start files, which clang uses as well; else empty."""
    start = _file("crtbegin.o", cxx, runner)
    # The path ends in `gcc/<target>/<release>/crtbegin.o`.
    return start.parent.name.partition(".")[0] if start else ""


def inspect_link_compiler(cxx: Path, cache: FactCache, runner: Runner) -> LinkedCompiler:
    """Ask the compiler, or remember what it answered.

    Raises:
        ToolchainError: it does not link with glibc, or its libstdc++.a is not installed.
    """
    macros = cache.get(f"c library of {cxx}", lambda: _ask_macros(cxx, runner))
    glibc = _release(macros)
    if glibc is None:
        raise ToolchainError(
            f"`{cxx}` does not compile for glibc; manylinux needs glibc",
            hint="choose a compiler for glibc with CXX, e.g. the distribution's g++",
        )
    facts = cache.get(f"static libraries of {cxx}", lambda: _ask_files(cxx, macros, runner))
    return LinkedCompiler(
        cxx,
        glibc,
        "x86_64" if "__x86_64__" in macros else "aarch64" if "__aarch64__" in macros else "other",
        Path(facts["libstdc++"]),
        Path(facts["nonshared"]) if facts["nonshared"] else None,
        facts["fingerprint"],
    )


def _release(facts: Facts) -> tuple[int, int] | None:
    if "__GLIBC__" not in facts:
        return None
    return int(facts["__GLIBC__"]), int(facts["__GLIBC_MINOR__"])


def _ask_macros(cxx: Path, runner: Runner) -> tuple[Facts, tuple[str, ...]]:
    # -H lists the headers: those of a cross compiler are in a folder of its own.
    flags = ("-dM", "-E", "-H", "-x", "c++", "-include", "features.h", "/dev/null")
    done = runner.run((str(cxx), *flags))
    macros = dict(_MACRO.findall(done.output)) if done.ok else {}
    facts = {name: macros[name] for name in _MACROS if name in macros}
    return facts, (str(cxx), *_FEATURES.findall(done.output))


def _ask_files(cxx: Path, macros: Facts, runner: Runner) -> tuple[Facts, tuple[str, ...]]:
    library = _file(_STATIC_LIBRARY, cxx, runner)
    if library is None:
        raise ToolchainError(
            f"`{cxx}` has no libstdc++.a, so it cannot make portable binaries",
            hint=INSTALL_STATIC_HINT.format(gcc=_gcc(cxx, runner) or "*"),
        )
    nonshared = _file(LIBC_NONSHARED, cxx, runner)
    contents = [file.read_bytes() for file in (library, nonshared) if file]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    text = repr((str(cxx.resolve()), sorted(macros.items()), digests))
    facts = {
        "libstdc++": str(library),
        "nonshared": str(nonshared or ""),
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
    }
    return facts, (str(cxx), str(library), *([str(nonshared)] if nonshared else ()))


def _file(name: str, cxx: Path, runner: Runner) -> Path | None:
    """The compiler's path of a library; the bare name when it has none."""
    done = runner.run((str(cxx), f"-print-file-name={name}"))
    path = Path(done.output.strip())
    return path.resolve() if done.ok and path.is_absolute() and path.is_file() else None
