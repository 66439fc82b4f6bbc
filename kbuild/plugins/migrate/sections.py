"""The sections of the new project: which sources each variant compiles, and with which flags.

Some flags stay, some become archs, and the rest is not taken over, with a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.plugins.migrate.package import Bindings, ForeignExtension, ForeignPackage
from kbuild.system.rendering import FILTERS

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
    """Reads the flags of one extension; `left` lists those that are not taken over."""

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
            # `arch=compute_90,code=sm_90` is 9.0; `code=compute_90` is 9.0+PTX.
            archs = [
                f"{major}.{minor}{suffix}{'+PTX' * (kind == 'compute')}"
                for kind, major, minor, suffix in _CODE.findall(text.rpartition("code=")[2])
            ]
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
    """Pairs of a flag and its value; a flag with several words is taken apart."""
    rest = iter(
        word
        for flag in flags
        for word in (flag.split() if flag.startswith("-") and "'" not in flag and '"' not in flag
                     else [flag])
    )  # fmt: skip
    for flag in rest:
        value = next(rest, None) if flag in _WITH_VALUE else None
        yield (flag,) if value is None else (flag, value)


_SHORT = 80
HEADERS = (".h", ".hpp", ".hh", ".cuh", ".inl", ".inc", ".h.in")
_OWN_LIBRARIES = re.compile(
    r"(?:lib)?(?:torch\w*|c10\w*|cudart\w*|cuda|python\S*|stdc\+\+)|\$\{TORCH_LIBRARIES\}|\S*torch\S*"
    r"|(?:Torch|CUDA|Python3?|pybind11)::\S+", re.IGNORECASE,
)  # fmt: skip


@dataclass
class KernelTable:
    """`[kernel.<name>]`."""

    name: str
    backend: str
    extension: ForeignExtension
    src: list[str]
    """Sources, then headers."""
    include: list[str] = field(default_factory=list)
    cxx_flags: list[FlagUnit] = field(default_factory=list)
    cuda_flags: list[FlagUnit] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The table's lines."""
        yield f"[kernel.{self.name}]"
        yield f'backend = "{self.backend}"'
        yield 'depends = ["torch"]'
        yield from list_lines({"include": self.include, "src": self.src})
        yield from list_lines(
            {"cxx-flags": flat(self.cxx_flags), "cuda-flags": flat(self.cuda_flags)}
        )
        yield from list_lines({"cuda-capabilities": self.archs})


def flat(units: Iterable[FlagUnit]) -> list[str]:
    """The flags in order, each once."""
    return [word for unit in dict.fromkeys(units) for word in unit]


def list_lines(keys: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Lines of the keys whose lists are not empty."""
    for key, values in keys.items():
        shown = [FILTERS["toml"](value) for value in values]
        if len(text := ", ".join(shown)) > _SHORT:
            yield f"{key} = [\n  " + ",\n  ".join(shown) + ",\n]"
        elif shown:
            yield f"{key} = [{text}]"


def read_table(
    package: ForeignPackage, extension: ForeignExtension, name: str, left: list[str]
) -> KernelTable:
    """The table of one extension, with all of its sources."""
    root = package.root
    backend = _backend_names()[extension.is_cuda]
    reader = FlagReader(extension, left, list(extension.archs))
    cxx_flags = reader.kept(extension.cxx_flags, "C++")
    cuda_flags = reader.kept(extension.cuda_flags, "CUDA")
    include = [*extension.include, *(_relative(root, path) for path in reader.include)]
    for path in (*extension.sources, *include):
        key = "sources" if path in extension.sources else "include_dirs"
        if Path(path).is_absolute() or ".." in Path(path).parts or "$" in path:
            left.append(f"{extension.place(key)}: `{path}` is outside the package")
        elif not (root / path).exists():
            left.append(f"{extension.place(key)}: `{path}` does not exist")
    sources = [path for path in extension.sources if _is_inside(root, path)]
    include = list(dict.fromkeys(path for path in include if _is_inside(root, path)))
    headers = [path for path in _headers(root, sources, include) if path not in sources]
    left += [
        f"{extension.place('libraries')}: library `{library}`: kernels link what Torch brings, "
        "see `depends`"
        for library in extension.libraries
        if not _OWN_LIBRARIES.fullmatch(library)
    ]
    place = extension.place("extra_link_args")
    left += [f"{place}: link flag `{flag}` is not taken over" for flag in extension.link_flags]
    # A name for each section: the extension's last part may be `_C`.
    label = re.sub(r"[^a-z0-9]+", "-", extension.name.lower()).strip("-")
    return KernelTable(
        label.removesuffix(f"-{backend}") or name,
        backend,
        extension,
        list(dict.fromkeys([*sources, *headers])),
        include,
        cxx_flags,
        cuda_flags if extension.is_cuda else [],
        sorted(set(reader.archs), key=lambda arch: (float(arch.rstrip("afPTX+")), arch))
        if extension.is_cuda
        else [],
    )


def merged_tables(
    tables: list[KernelTable], bindings: Bindings, left: list[str]
) -> list[KernelTable]:
    """The tables with each source once for each backend.

    A variant has what all extensions of its machine have: on a GPU those for the CPU as well,
    unless one for CUDA is there in their place.
    """
    host, device = _backend_names()
    for_device = [table for table in tables if table.backend == device]
    for_host = [table for table in tables if table.backend == host]
    also = [
        KernelTable(own.name, device, own.extension, own.src, own.include, own.cxx_flags)
        for own in (for_host if for_device else ())
    ]
    return [*_once(for_host, bindings, left), *_once([*for_device, *also], bindings, left)]


def _once(tables: list[KernelTable], bindings: Bindings, left: list[str]) -> Iterator[KernelTable]:
    """The tables of one backend without sources that an earlier one has."""
    owners: dict[str, KernelTable] = {}
    ops: dict[str, str] = {}
    names: set[str] = set()
    for table in tables:
        taken = [path for path in table.src if path not in owners]
        twice = sorted(
            op for path in taken for op in bindings.ops.get(path, ()) if ops.get(op, path) != path
        )
        if twice:
            first = ops[twice[0]]
            left.append(
                f"{table.extension.place()}: `{twice[0]}` is bound here and by {first}: the "
                f"{table.backend} variant has that one, and nothing of `{table.extension.name}`"
            )
            continue
        shared = [path for path in table.src if path in owners and not path.endswith(HEADERS)]
        is_alternative = bool(shared) and all(path.endswith(HEADERS) for path in taken)
        for path in () if is_alternative else shared:
            first_table = owners[path]
            flags = (first_table.cxx_flags, first_table.cuda_flags)
            if flags != (table.cxx_flags, table.cuda_flags):
                left.append(
                    f"{table.extension.place()}: `{path}` is compiled once for {table.backend}, "
                    f"with the flags of `{first_table.extension.name}`"
                )
        owners |= dict.fromkeys(taken, table)
        ops |= {op: path for path in taken for op in bindings.ops.get(path, ())}
        if is_alternative:
            continue
        table.src = taken
        table.name = _unused(f"{table.name}-{table.backend}", names)
        names.add(table.name)
        yield table


def _unused(name: str, names: set[str]) -> str:
    number, own = 2, name
    while own in names:
        own, number = f"{name}-{number}", number + 1
    return own


def _backend_names() -> tuple[str, str]:
    """The host's backend, and the one that compiles CUDA sources as they are."""
    backends = [backend for backend in BACKENDS if backend.section is not None]
    host = next(backend.name for backend in backends if backend.runs_on_cpu)
    device = next(b.name for b in backends if b.language_of("kernel.cu") == "CUDA")
    return host, device


def _relative(root: Path, path: str) -> str:
    whole = (root / path).resolve()
    return (
        whole.relative_to(root.resolve()).as_posix()
        if whole.is_relative_to(root.resolve())
        else path
    )


def _is_inside(root: Path, path: str) -> bool:
    return not Path(path).is_absolute() and ".." not in Path(path).parts and (root / path).exists()


def _headers(root: Path, sources: Iterable[str], include: Iterable[str]) -> Iterator[str]:
    """Headers beside the sources, and below the include folders."""
    beside = {Path(source).parent for source in sources}
    for folder in sorted(beside):
        yield from _below(root, (root / folder).iterdir())
    for folder in sorted(set(map(Path, include)) - beside):
        yield from _below(root, (root / folder).rglob("*"))


def _below(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    for path in sorted(paths):
        if path.is_file() and path.name.endswith(HEADERS):
            yield path.relative_to(root).as_posix()
