"""`metadata.json`: what a variant says about itself to the `kernels` client.

The client (0.17.2) requires `name, id, version, license, python-depends, backend.type`, ignores
unknown keys except inside `kernel-depends`, and refuses a `provenance` without `kernel-builder`.
An extra `name` inside `kernel-builder` is ignored there, so it can say that kbuild was the builder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.errors import DamagedFileError

METADATA_FILE = "metadata.json"
ALGORITHMS = ("sha256", "sha512")
BACKEND_TYPES = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")


class MetadataError(DamagedFileError):
    """The text is not a variant's metadata; carries every problem found."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class KernelDependency:
    """Another kernel that this one needs, at a version or at a revision."""

    repo_id: str
    version: int | None = None
    revision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"repo-id": ..., "version": 1}` or with `revision`."""
        if self.version is not None:
            return {"repo-id": self.repo_id, "version": self.version}
        return {"repo-id": self.repo_id, "revision": self.revision}


@dataclass(frozen=True)
class GitState:
    """A commit, and whether tracked files differed from it."""

    commit: str
    """Full object id, 40 or 64 lower-case hex digits."""
    dirty: bool

    def to_json(self) -> dict[str, Any]:
        """`{"commit": ..., "dirty": ...}`."""
        return {"commit": self.commit, "dirty": self.dirty}


@dataclass(frozen=True)
class UsedToolchain:
    """What the variant was compiled with; places on that machine are left out."""

    source: str
    """Where it came from: `host`, `wheels`, `debian-nvcc`, ..."""
    versions: Mapping[str, str]
    """By name, e.g. `c++`, `cuda`, `torch`."""

    def to_json(self) -> dict[str, Any]:
        """`{"source": ..., "versions": {...}}`."""
        return {"source": self.source, "versions": dict(self.versions)}


@dataclass(frozen=True)
class Builder:
    """The tool that built the variant."""

    version: str
    name: str = "kbuild"
    git: GitState | None = None
    """State of the tool's own source, when it ran from a checkout."""
    toolchain: UsedToolchain | None = None
    """None when nothing was compiled, and in variants of other tools."""
    sandbox: str = ""
    """What was wrong with Nix's sandbox: `off`, `relaxed` or `unsure`; empty when nothing was."""
    overruled: Mapping[str, str] = field(default_factory=dict)
    """Checks that found errors which the author overruled, with reasons."""

    def to_json(self) -> dict[str, Any]:
        """`{"name": ..., "version": ...}` and what is known of the rest.

        That is `commit` and `dirty`, `toolchain`, `sandbox` and `overruled`.
        """
        entries = {"name": self.name, "version": self.version}
        git = self.git.to_json() if self.git else {}
        used = {"toolchain": self.toolchain.to_json()} if self.toolchain else {}
        marked = {"sandbox": self.sandbox} if self.sandbox else {}
        told = {"overruled": dict(self.overruled)} if self.overruled else {}
        return {**entries, **git, **used, **marked, **told}


@dataclass(frozen=True)
class Provenance:
    """What built the variant, and from which source."""

    builder: Builder
    kernel: GitState | None = None
    """None when the source was not in git."""

    def to_json(self) -> dict[str, Any]:
        """`{"kernel-builder": {...}, "kernel"?: {...}}`."""
        made = {"kernel-builder": self.builder.to_json()}
        return made | ({"kernel": self.kernel.to_json()} if self.kernel else {})


@dataclass(frozen=True)
class Metadata:
    """The whole of one `metadata.json`."""

    name: str
    id: str
    """Op namespace, base name of the extension, and the module's key in `sys.modules`."""
    version: int
    license: str
    backend: str
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    archs: tuple[str, ...] | None = None
    upstream: str | None = None
    source: str | None = None
    kernels_minver: str | None = None
    """Oldest `kernels` client that loads the variant, three parts."""
    digest: Mapping[str, Any] | None = None
    """As `kbuild.digest.digest_variant` returns it."""
    provenance: Provenance | None = None

    @property
    def overruled(self) -> Mapping[str, str]:
        """Checks that found errors which the author overruled, with reasons."""
        return self.provenance.builder.overruled if self.provenance else {}

    @property
    def python_name(self) -> str:
        """The name as a Python package."""
        return self.name.replace("-", "_")

    def to_json(self) -> dict[str, Any]:
        """The JSON object, keys in the order that readers of such files are used to."""
        backend = {"type": self.backend, "archs": None if self.archs is None else list(self.archs)}
        entries = {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "kernels-minver": self.kernels_minver,
            "license": self.license,
            "upstream": self.upstream,
            "source": self.source,
            "python-depends": list(self.python_depends),
            "kernel-depends": [dependency.to_json() for dependency in self.kernel_depends],
            "backend": _without_none(backend),
            "digest": None if self.digest is None else dict(self.digest),
            "provenance": self.provenance and self.provenance.to_json(),
        }
        return _without_none(entries)

    def to_json_text(self) -> str:
        """The file's text: two spaces of indentation, one newline at the end."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"


def _without_none(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}
