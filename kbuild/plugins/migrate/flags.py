"""The compiler flags of a package: what stays, what becomes archs, and what is not taken over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kbuild.plugins.migrate.package import ForeignExtension

FlagUnit = tuple[str, ...]
"""A flag, with its value where that is an argument of its own."""
_GENCODE = re.compile(r"(?:-gencode|--generate-code)(?:[= ].*)?")
_ARCH = re.compile(r"(?:-arch|--gpu-architecture|-code|--gpu-code)(?:[= ].*)?")
_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_OWN_FLAGS = re.compile(
    r"-std=.*|--std=.*|-O[0-3s]?|-fPIC|-D_GLIBCXX_USE_CXX11_ABI=.*|-DTORCH_(?:EXTENSION|API)_.*"
    r"|(?:-t|--threads)(?:[= ]?\d+)?|-std \S+"
)
"""Flags that the build sets itself."""
_HOST = ("-Xcompiler", "--compiler-options")
_WITH_VALUE = frozenset(
    (
        *_HOST, "-Xptxas", "--ptxas-options", "-Xlinker", "-Xcudafe", "-Xfatbin", "-Xnvlink",
        "-Xarchive", "--archive-options", "--linker-options", "--nvlink-options", "-I", "-D", "-U",
        "-isystem", "-include", "-iquote", "-idirafter", "-maxrregcount", "--maxrregcount", "-std",
        "--std", "-ccbin", "--compiler-bindir", "-t", "--threads", "-x", "-diag-suppress",
        "--diag-suppress", "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code",
        "--gpu-code", "-mllvm", "-Xclang", "-target", "--param", "-default-stream",
        "--default-stream",
    )
)  # fmt: skip
_LINK = re.compile(r"-L|-Wl,|-l(?!ineinfo)")
_JOINED = ("-I", "-D", "-U")


@dataclass
class FlagReader:
    """Reads the flags of one extension; `left` gets what is not taken over, with its place."""

    extension: ForeignExtension
    left: list[str]
    archs: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    """Folders of headers."""

    def kept(self, flags: Sequence[str], language: str) -> list[FlagUnit]:
        """The flags without those that the build sets; archs go to `archs`."""
        units = []
        for unit in _units(flags):
            kept = self._unit(unit, language)
            units += [kept] if kept else []
        return units

    def _unit(self, unit: FlagUnit, language: str) -> FlagUnit:
        text = " ".join(unit)
        if _GENCODE.fullmatch(text) or _ARCH.fullmatch(text):
            archs = list(_archs_of(text))
            self.archs += archs
            if not archs or "lto_" in text:
                self._refuse(text, language, "names no arch: see `cuda-capabilities`")
            return ()
        if unit[0] in _HOST or unit[0].startswith(tuple(f"{flag}=" for flag in _HOST)):
            name, _, joined = unit[0].partition("=")
            values = (unit[1] if len(unit) > 1 else joined).strip("'\"").split(",")
            rest = [value for value in values if value and not _OWN_FLAGS.fullmatch(value)]
            return (f"{name}={','.join(rest)}",) if rest else ()
        if unit[0] in _JOINED and len(unit) > 1:
            unit = ("".join(unit),)
        if folder := re.fullmatch(r"(?:-I|-isystem|-iquote)\s*(.+)", " ".join(unit)):
            self.include.append(folder[1])
            return ()
        if _LINK.match(unit[0]) or "$<" in text or "${" in text:
            self._refuse(text, language, "is not for the compiler")
            return ()
        return () if _OWN_FLAGS.fullmatch(" ".join(unit)) else unit

    def _refuse(self, text: str, language: str, why: str) -> None:
        place = self.extension.place("extra_compile_args")
        self.left.append(f"{place}: the {language} flag `{text}` {why}")


def _units(flags: Sequence[str]) -> Iterator[FlagUnit]:
    """Each flag with its value; one that several words were put into is taken apart."""
    rest = iter(
        word
        for flag in flags
        for word in (flag.split() if flag.startswith("-") and "'" not in flag and '"' not in flag
                     else [flag])
    )  # fmt: skip
    for flag in rest:
        value = next(rest, None) if flag in _WITH_VALUE else None
        yield (flag,) if value is None else (flag, value)


def _archs_of(text: str) -> Iterator[str]:
    """`arch=compute_90,code=sm_90` is 9.0; `code=compute_90` is 9.0+PTX."""
    codes = text.rpartition("code=")[2]
    for kind, major, minor, suffix in _CODE.findall(codes):
        yield f"{major}.{minor}{suffix}" + ("+PTX" if kind == "compute" else "")
