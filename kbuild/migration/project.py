"""Writes the project that takes over a package: `build.toml`, sources, and the Python package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.config.schema import SCHEMA_ID
from kbuild.languages.base import LANGUAGES
from kbuild.licences import spdx_doubt
from kbuild.migration.cxx import Bindings, rewrite_bindings
from kbuild.migration.package import ForeignExtension, ForeignPackage
from kbuild.migration.python import ForeignNames, rewrite_module
from kbuild.rendering import FILTERS, template_root
from kbuild.runtime.files import FileSet
from kbuild.scaffold import Scaffold, scaffold_files

_SHORT = 80
_HEADERS = (".h", ".hpp", ".hh", ".cuh", ".inl", ".inc", ".h.in")
_PLACEHOLDER = "torch-ext/kernel.h"
_GENCODE = re.compile(r"(?:-gencode|--generate-code)[= ]?(?=arch|$)|-gencode$")
_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_OWN_FLAGS = re.compile(
    r"-std=.*|--std=.*|-O[0-3s]?|-fPIC|-D_GLIBCXX_USE_CXX11_ABI=.*|-DTORCH_(?:EXTENSION|API)_.*"
    r"|-?-t(?:hreads)?(?:[= ]?\d+)?"
)
"""Flags that the build sets itself."""
_OWN_LIBRARIES = re.compile(
    r"(?:lib)?(?:torch\w*|c10\w*|cudart\w*|cuda|python\S*|stdc\+\+)|\$\{TORCH_LIBRARIES\}|\S*torch\S*"
    r"|(?:Torch|CUDA|Python3?|pybind11)::\S+", re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True)
class MigratedProject:
    """The new project, and what is left to do."""

    scaffold: Scaffold
    files: FileSet
    left: tuple[str, ...]


@dataclass
class _Section:
    """`[kernel.<name>]`."""

    name: str
    backend: str
    src: list[str]
    bindings: list[str] = field(default_factory=list)
    """Sources that register ops, which are those of `[torch]`."""
    include: list[str] = field(default_factory=list)
    cxx_flags: list[str] = field(default_factory=list)
    cuda_flags: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The table's lines."""
        yield f"[kernel.{self.name}]"
        yield f'backend = "{self.backend}"'
        yield 'depends = ["torch"]'
        own = {
            "include": self.include, "src": self.src, "cxx-flags": self.cxx_flags,
            "cuda-flags": self.cuda_flags, "cuda-capabilities": self.archs,
        }  # fmt: skip
        yield from _lists(own)


def _lists(keys: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Lines of the keys whose lists are not empty."""
    for key, values in keys.items():
        shown = [FILTERS["toml"](value) for value in dict.fromkeys(values)]
        if len(text := ", ".join(shown)) > _SHORT:
            yield f"{key} = [\n  " + ",\n  ".join(shown) + ",\n]"
        elif shown:
            yield f"{key} = [{text}]"


def migrate_package(
    package: ForeignPackage, name: str, repo_id: str, licence: str
) -> MigratedProject:
    """The project of a kernel that does what the package does.

    Args:
        package: what there is.
        name: the kernel's name.
        repo_id: where it is to be published.
        licence: its SPDX expression, unless the package has one.
    """
    left = list(package.notes)
    if package.license and not spdx_doubt(package.license):
        licence = package.license
    else:
        said = (
            f"the package says `{package.license}`" if package.license else "the package has none"
        )
        left.append(f"build.toml: the licence is `{licence}`; {said}")
    files: dict[str, bytes] = {}
    bindings, sections = Bindings(), []
    for extension in package.extensions:
        section, rewritten = _take_extension(package.root, extension, name, left)
        sections.append(section)
        files |= {path: text.encode() for path, text in rewritten.texts.items()}
        if not section.src:
            section.src = [_PLACEHOLDER]
            files[_PLACEHOLDER] = b"// A kernel has sources; these are in [torch].\n#pragma once\n"
        bindings.ops += rewritten.ops
        bindings.namespaces |= rewritten.namespaces
        left += rewritten.notes
    if len(sections) > 1:
        left.append(
            "build.toml: the extensions are one now, because a kernel has one: their ops are in "
            "one namespace, and only one source may have `REGISTER_EXTENSION`"
        )
    backends = (
        tuple(sorted({section.backend for section in sections}))
        or LANGUAGES.get("triton").init_backends
    )
    python_name = name.replace("-", "_")
    files |= _python_files(package, python_name, bindings, left)
    owner = repo_id.partition("/")[0]
    compiled = backends if sections else ()
    scaffold = Scaffold(name, owner, repo_id, licence, backends, compiled)
    every = scaffold_files(scaffold, template_root() / "init", ("every",))
    files |= dict(every.items())
    files["build.toml"] = _build_toml(scaffold, sections).encode()
    if not sections:
        left.append(
            "the Triton kernels are compiled on the user's machine; `kbuild capture` and "
            "[kernel.*] sections compile them at build time"
        )
    return MigratedProject(scaffold, FileSet(files), tuple(dict.fromkeys(left)))


def _build_toml(scaffold: Scaffold, sections: Sequence[_Section]) -> str:
    backends = ", ".join(f'"{backend}"' for backend in scaffold.backends)
    lines = [
        f"#:schema {SCHEMA_ID}",
        "[general]", f'name = "{scaffold.name}"', "version = 1", "edition = 5",
        f"license = {FILTERS['toml'](scaffold.license)}", f"backends = [{backends}]", "",
        "[general.hub]", f'repo-id = "{scaffold.repo_id}"', "",
        "[torch]" if sections else "[torch-noarch]",
    ]  # fmt: skip
    bindings = {
        "include": [path for section in sections for path in section.include],
        "src": [path for section in sections for path in section.bindings],
        "cxx-flags": [flag for section in sections for flag in section.cxx_flags],
    }
    lines += _lists(bindings)
    for section in sections:
        lines += ["", *section.lines()]
    return "\n".join(lines) + "\n"


def _take_extension(
    root: Path, extension: ForeignExtension, name: str, left: list[str]
) -> tuple[_Section, Bindings]:
    place = extension.name or name
    for path in (*extension.sources, *extension.include):
        if Path(path).is_absolute() or ".." in Path(path).parts or "$" in path:
            left.append(f"{place}: `{path}` is outside the package")
        elif not (root / path).exists():
            left.append(f"{place}: `{path}` does not exist")
    sources = [path for path in extension.sources if _is_inside(root, path)]
    include = [path for path in extension.include if _is_inside(root, path)]
    headers = [path for path in _headers(root, sources, include) if path not in sources]
    backend = _backend_of(extension)
    # A name for each section: the extension's last part may be `_C`.
    label = re.sub(r"[^a-z0-9]+", "-", extension.name.lower()).strip("-")
    section = _Section(
        f"{label.removesuffix(f'-{backend}') or name}-{backend}",
        backend,
        [*sources, *headers],
        include=include,
    )
    archs = list(extension.archs)
    section.cxx_flags = list(_kept_flags(extension.cxx_flags, archs))
    if extension.is_cuda:
        section.cuda_flags = list(_kept_flags(extension.cuda_flags, archs))
        section.archs = sorted(set(archs), key=lambda arch: (float(arch.rstrip("afPTX+")), arch))
    left += [
        f"{place}: library `{library}`: kernels link what Torch brings, see `depends`"
        for library in extension.libraries
        if not _OWN_LIBRARIES.fullmatch(library)
    ]
    left += [f"{place}: link flag `{flag}`" for flag in extension.link_flags]
    texts = {path: (root / path).read_text("utf-8", "replace") for path in section.src}
    rewritten = rewrite_bindings(texts)
    section.bindings = [path for path in rewritten.registering if path in sources]
    section.src = [path for path in section.src if path not in section.bindings]
    return section, rewritten


def _backend_of(extension: ForeignExtension) -> str:
    """The backend that compiles CUDA sources as they are, or the host's."""
    backends = (b for b in BACKENDS if b.section is not None)
    if extension.is_cuda:
        return next(b.name for b in backends if b.language_of("kernel.cu") == "CUDA")
    return next(b.name for b in backends if b.is_host)


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
        if path.is_file() and path.name.endswith(_HEADERS):
            yield path.relative_to(root).as_posix()


def _kept_flags(flags: Sequence[str], archs: list[str]) -> Iterator[str]:
    """The flags without those that the build sets; archs go to `archs`."""
    rest = iter(flags)
    for flag in rest:
        if _GENCODE.match(flag) or flag.startswith(("-arch", "--gpu-architecture")):
            value = flag if _CODE.search(flag) else next(rest, "")
            archs += _archs_of(value)
        elif flag in {"-t", "--threads"}:
            next(rest, None)
        elif not _OWN_FLAGS.fullmatch(flag):
            yield flag


def _archs_of(value: str) -> Iterator[str]:
    """`arch=compute_90,code=sm_90` is 9.0; `code=compute_90` is 9.0+PTX."""
    codes = value.partition("code=")[2] or value
    for kind, major, minor, suffix in _CODE.findall(codes):
        yield f"{major}.{minor}{suffix}" + ("+PTX" if kind == "compute" else "")


def _python_files(
    package: ForeignPackage, python_name: str, bindings: Bindings, left: list[str]
) -> dict[str, bytes]:
    """The kernel's Python package."""
    roots = sorted({name.partition(".")[0] for name in package.modules if "." in name})
    own = python_name if python_name in roots or not roots else roots[0]
    left += [f"the package `{other}`: a kernel has one" for other in roots if other != own]
    names = ForeignNames(own, {e.name for e in package.extensions}, bindings.namespaces)
    files: dict[str, bytes] = {}
    for name, path in package.modules.items():
        top, _, inside = name.partition(".")
        if inside and top != own:
            continue
        parts = (inside or ("__init__" if name == python_name else name)).split(".")
        text, notes = rewrite_module(path.read_text("utf-8"), len(parts) - 1, names)
        target = f"torch-ext/{python_name}/{'/'.join(parts)}.py"
        files[target] = text.encode()
        left += [f"{target}:{note}" for note in notes]
    init = f"torch-ext/{python_name}/__init__.py"
    if init not in files:
        singles = [name for name in package.modules if "." not in name]
        lines = [f"from .{name} import *  # noqa: F403" for name in singles]
        if not singles:
            lines = ["from ._ops import ops", ""]
            lines += [f"{op} = ops.{op}" for op in bindings.ops]
            lines += ["", f"__all__ = [{', '.join(map(repr, bindings.ops))}]"]
        files[init] = ("\n".join(lines) + "\n").encode()
    return files
