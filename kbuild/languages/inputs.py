"""What the images of a kernel depend on besides their units: sources, pins, programs."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from kbuild.errors import BuildError
from kbuild.fileset import replace_atomically
from kbuild.installation import code_digest
from kbuild.sourcetree import SourceTree

_FOLDER = Path(__file__).parent
_READERS = ("bench.py", "image.py", "kernels.py")
"""What reads a worker's answer before it is kept."""


class Kernel(Protocol):
    """What of a planned kernel is needed to compile it."""

    @property
    def name(self) -> str:
        """The `[kernel.*]` section."""
        ...

    @property
    def language(self) -> str:
        """A name of `LANGUAGES`."""
        ...

    @property
    def toolchain(self) -> tuple[str, ...]:
        """Exact pins."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """Paths in the project, the one with the functions first."""
        ...

    @property
    def flavour(self) -> str:
        """`cuda12`, `cuda13` or `rocm`."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """The sources of a kernel as they were when they were read."""

    texts: tuple[tuple[str, bytes], ...]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """Path -> SHA-256."""
        return {path: hashlib.sha256(text).hexdigest() for path, text in self.texts}

    @property
    def key(self) -> str:
        """Of paths and content."""
        return digest(self.digests)

    def write(self, folder: Path) -> Path:
        """A folder below `folder` that holds them and nothing else."""
        target = folder / self.key[:16]
        for path, text in self.texts:
            file = target / path
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_atomically(file, text)
        return target


def snapshot(kernel: Kernel, root: Path) -> Snapshot:
    """Read the sources.

    Raises:
        BuildError: one is not there.
        ConfigError: one is no file of the project.
    """
    texts, tree = [], SourceTree(root)
    for path in kernel.sources:
        try:
            texts.append((path, tree.read_bytes(path)))
        except OSError as error:
            what = f"kernel.{kernel.name}.src: `{path}` cannot be read: {error.strerror}"
            raise BuildError(what) from None
    return Snapshot(tuple(texts))


def toolchain(pins: Sequence[str], programs: Mapping[str, str]) -> dict[str, str]:
    """Everything that compiles: distributions, assembler, interpreter, and kbuild's own worker."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {**versions_of(pins), **programs, "python": python, "worker": _worker()}


def versions_of(pins: Sequence[str]) -> dict[str, str]:
    """Distribution -> version."""
    return {name: version for name, _, version in (pin.partition("==") for pin in pins)}


def digest(value: Any) -> str:
    """SHA-256 of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _worker() -> str:
    folder = _FOLDER / "worker"
    own = sorted((*folder.rglob("*.py"), *folder.glob("*.txt")))
    files = (*own, *(_FOLDER / name for name in _READERS))
    return code_digest(*files)[:16]
