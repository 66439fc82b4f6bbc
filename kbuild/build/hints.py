"""Hints for failures of compilers and linkers that say too little."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from pathlib import Path

from kbuild import manual_page

_NOT_ON_TARGET = re.compile(
    r"ptxas .*(?:Instruction|Feature) '(?P<what>[^']+)' "
    r"(?:not supported on \.target|cannot be compiled for architecture) 'sm_(?P<arch>\d+)[af]?'"
)
_NEWER_TARGET = re.compile(
    r"ptxas .*'(?P<what>[^']+)' requires \.target sm_(?P<arch>\d+)[af]? or higher"
)
_FIRST_SPECIFIC = 90
"""The first GPUs with instructions that later ones do not have."""
_OF_ONE_FAMILY = {"wgmma": ("9.0a",), "tcgen05": ("10.0a", "10.3a")}
_OBJECT = re.compile(r"[^\s:]*\.dir/(\S+?)\.o\b")
_PYBIND = re.compile(r"^[ \t]*PYBIND11_MODULE\s*\(", re.MULTILINE)


def compile_hint(lines: Sequence[str]) -> str:
    """The hint for an error of ptxas; empty where none is known."""
    for line in lines:
        if match := _NOT_ON_TARGET.search(line):
            return _specific_hint(match["what"], int(match["arch"]))
        if match := _NEWER_TARGET.search(line):
            arch = _capability(int(match["arch"]))
            return (
                f"`{match['what']}` needs a GPU of {arch} or later: name no older one in "
                "`cuda-capabilities` of its section, or guard it with `__CUDA_ARCH__`"
            )
    return ""


def _specific_hint(what: str, arch: int) -> str:
    """An instruction that only a target with the suffix `a` has."""
    family = next((archs for begin, archs in _OF_ONE_FAMILY.items() if what.startswith(begin)), ())
    own = f"{_capability(arch)}a"
    if arch < _FIRST_SPECIFIC or (family and own not in family):
        named = " or ".join(f'`"{name}"`' for name in family or ("9.0a",))
        return (
            f"`{what}` is not for GPUs of {_capability(arch)}: compile it in a section whose "
            f"`cuda-capabilities` name {named} alone"
        )
    return (
        f"`{what}` needs the suffix `a`: write `{own}` instead of `{_capability(arch)}` in "
        "`cuda-capabilities` of its section"
    )


def _capability(arch: int) -> str:
    return f"{arch // 10}.{arch % 10}"


def link_hint(lines: Sequence[str], root: Path) -> str:
    """The hint for a definition that two objects have, where one source includes the other."""
    if not any("multiple definition of" in line for line in lines):
        return ""
    objects = dict.fromkeys(name for line in lines for name in _OBJECT.findall(line))
    sources = [f"/{name}".removeprefix(f"{root}/").removeprefix("/") for name in objects]
    for source in sources:
        for other in sources:
            if source != other and _includes(root / source, other):
                return (
                    f"`{source}` includes `{other}`, and `src` lists both: take `{other}` out of "
                    "`src`, or give it the ending of a header"
                )
    return ""


def _includes(path: Path, other: str) -> bool:
    name = re.escape(posixpath.basename(other))
    return re.search(rf'#[ \t]*include[ \t]*["<](?:[^">\n]*/)?{name}[">]', _text(path)) is not None


def python_module_error(source: Path, lines: Sequence[str]) -> tuple[str, str]:
    """(reason, hint) where a source that defines a Python module fails in pybind11; else empty."""
    if not any("pybind11/" in line for line in lines) or not _PYBIND.search(_text(source)):
        return "", ""
    page = manual_page("how-to/migrate-from-cpp-extension.md")
    return (
        "it defines a Python module with pybind11, which Python's stable ABI does not allow",
        f"register its functions as ops instead; {page} shows how",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
