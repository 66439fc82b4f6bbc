"""Headers that are on this machine rather than in kbuild's store: Python's, Torch's, the user's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from kbuild.provenance.ingredient import Ingredient
from kbuild.toolchains import Toolchain
from kbuild.toolchains.sources.tree import digest_of

_FOLDERS = re.compile(r"KBUILD_(\w+)_INCLUDE_DIRS?")
_PYTHON = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)
_TOOLKIT = ("nvvm/libdevice/libdevice.10.bc", "version.json")
_PROJECTS = {"torch": "torch", "tvm_ffi": "apache-tvm-ffi"}
"""Facts of CMake projects -> installed project that the headers are of."""


def headers_on_this_machine(toolchain: Toolchain, store: Path) -> Iterator[Ingredient]:
    """What the toolchain names in folders outside the store."""
    releases = {name: text.split(" (")[0] for name, text in toolchain.headers}
    releases |= dict(toolchain.versions)
    for key, value in toolchain.cache:
        match = _FOLDERS.fullmatch(key)
        folders = tuple(Path(part) for part in value.split(";") if part)
        here = tuple(folder for folder in folders if not folder.is_relative_to(store))
        if match and here:
            yield _headers(match[1].lower(), here, releases)
        elif key == "CUDAToolkit_ROOT" and here:
            yield _toolkit(here[0], releases.get("cuda", ""))


def _toolkit(root: Path, version: str) -> Ingredient:
    """An installed CUDA toolkit, by what nvcc links into device code and what it says it is."""
    files = [root / name for name in _TOOLKIT if (root / name).is_file()]
    contents = [f"{file.name}\0{_sha256(file.read_bytes())}\n" for file in files]
    digest = ("sha256", _sha256("".join(contents).encode()))
    return Ingredient("cuda", version, digest, "its libdevice and version file", "device")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _headers(name: str, folders: tuple[Path, ...], releases: dict[str, str]) -> Ingredient:
    if name == "python":
        return _python(folders)
    project = _PROJECTS.get(name)
    installed = _recorded(project, folders[0]) if project else None
    if project is None or installed is None:
        digest, covers = digest_of(folders), "every file of the folders"
    else:
        digest, covers = installed, "its files as pip recorded them"
    known = project or name
    purl = f"pkg:pypi/{known}@{releases[known]}" if project and known in releases else ""
    return Ingredient(known, releases.get(known, ""), ("sha256", digest), covers, "headers", purl)


def _python(folders: tuple[Path, ...]) -> Ingredient:
    try:
        found = _PYTHON.search((folders[0] / "patchlevel.h").read_text("utf-8", "replace"))
    except OSError:
        found = None
    digest = ("sha256", digest_of(folders))
    words = "every file of the folders"
    return Ingredient("python headers", found[1] if found else "", digest, words, "headers")


def _recorded(project: str, include: Path) -> str | None:
    """Digest of what pip recorded of the package itself; programs know where they were put."""
    package = next((up for up in include.parents if (up / "__init__.py").is_file()), None)
    if package is None:
        return None
    pattern = f"{project.replace('-', '_')}-*.dist-info/RECORD"
    record = next(iter(sorted(package.parent.glob(pattern))), None)
    if record is None:
        return None
    lines = record.read_text("utf-8").splitlines()
    own = sorted(
        line for line in lines if line.startswith(f"{package.name}/") and "sha256=" in line
    )
    return _sha256("\n".join(own).encode())
