"""Facts about a host compiler: its C library's release, and its libraries' static parts."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from kbuild.system.errors import ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.version import Version
from kbuild.toolchains.facts import FactCache, Facts
from kbuild.toolchains.manylinux.stubs import LIBC_NONSHARED

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
