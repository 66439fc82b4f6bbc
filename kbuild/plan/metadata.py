"""`metadata.json`, what a variant tells the `kernels` client; it is read with all its problems.

The client (0.17.2) requires `name, id, version, license, python-depends, backend.type`, ignores
unknown keys except inside `kernel-depends`, and refuses a `provenance` without `kernel-builder`.
An extra `name` inside `kernel-builder` is ignored there, so it can say that kbuild was the builder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kbuild.system.errors import DamagedFileError
from kbuild.system.untrusted import parse_json, read_bytes, reason_of

METADATA_FILE = "metadata.json"


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
        return asdict(self)


@dataclass(frozen=True)
class UsedToolchain:
    """The toolchain that compiled the variant, without paths of that machine."""

    source: str
    """Kind of the toolchain: `host`, `wheels`, `debian-nvcc`, ..."""
    versions: Mapping[str, str]
    """Version of each part, such as `c++`, `cuda`, `torch`."""

    def to_json(self) -> dict[str, Any]:
        """`{"source": ..., "versions": {...}}`."""
        return asdict(self)


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
    """Weakness of Nix's sandbox: `off`, `relaxed` or `unsure`; empty if there was none."""
    overruled: Mapping[str, str] = field(default_factory=dict)
    """Checks that found errors which the author overruled, with reasons."""
    not_run: tuple[str, ...] = ()
    """Checks that need a machine of the variant's processor, and had none."""

    def to_json(self) -> dict[str, Any]:
        """Name, version, `commit` and `dirty`, and of the other fields those that say something."""
        entries = {"name": self.name, "version": self.version}
        others = {
            "toolchain": self.toolchain and self.toolchain.to_json(),
            "sandbox": self.sandbox,
            "overruled": dict(self.overruled),
            "not-run": list(self.not_run),
        }
        known = {key: value for key, value in others.items() if value}
        return {**entries, **(self.git.to_json() if self.git else {}), **known}


@dataclass(frozen=True)
class Provenance:
    """The builder of the variant, and the source that it was built from."""

    builder: Builder
    kernel: GitState | None = None
    """None when the source was not in git."""

    def to_json(self) -> dict[str, Any]:
        """`{"kernel-builder": {...}, "kernel"?: {...}}`."""
        entries = {"kernel-builder": self.builder.to_json()}
        return entries | ({"kernel": self.kernel.to_json()} if self.kernel else {})


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
    """Digest of the files, as `kbuild.plan.digest.digest_variant` returns it."""
    provenance: Provenance | None = None

    @property
    def overruled(self) -> Mapping[str, str]:
        """Checks that found errors which the author overruled, with reasons."""
        return self.provenance.builder.overruled if self.provenance else {}

    @property
    def not_run(self) -> tuple[str, ...]:
        """See `Builder.not_run`."""
        return self.provenance.builder.not_run if self.provenance else ()

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


NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
MINVER = re.compile(r"\d+\.\d+\.\d+")
ALGORITHM = re.compile(r"sha256|sha512")
URL = re.compile(r"(?:(?:git\+)?(?:https?|ssh)|git)://\S+|[\w.-]+@[\w.-]+:\S+")

_FILE_KIND = "metadata of a variant"

_ANY = re.compile(r".*", re.DOTALL)
T = TypeVar("T")


def read_metadata(variant: Path) -> Metadata:
    """Read the metadata in the folder of a variant.

    Raises:
        MetadataError: with every reason why the `kernels` client would not read it either.
        OSError: the file cannot be read.
    """
    path = variant / METADATA_FILE
    return _as_metadata_error(lambda: parse_metadata(read_bytes(path, _FILE_KIND)))


def metadata_in(variant: Path) -> Metadata | None:
    """The metadata in the folder of a variant; None when it cannot be read."""
    try:
        return read_metadata(variant)
    except (MetadataError, OSError):
        return None


def parse_metadata(data: str | bytes) -> Metadata:
    """Read a `metadata.json`.

    Raises:
        MetadataError: with every reason why the `kernels` client would not read it either.
    """
    document = _as_metadata_error(lambda: parse_json(data, METADATA_FILE, _FILE_KIND))
    problems: list[str] = []
    metadata = _read_document(_JsonPart(document, "", problems))
    if problems:
        raise MetadataError(tuple(problems))
    return metadata


def _as_metadata_error(read: Callable[[], T]) -> T:
    try:
        return read()
    except MetadataError:
        raise
    except DamagedFileError as error:
        raise MetadataError((reason_of(error),)) from error


class _JsonPart:
    """An object in the document. Its values count only if no problems were collected."""

    def __init__(self, entries: Mapping[str, Any], prefix: str, problems: list[str]) -> None:
        self.entries, self.prefix, self.problems = entries, prefix, problems

    def report(self, key: str, problem: str) -> None:
        """Add a problem of a key."""
        self.problems.append(f"`{self.prefix}{key}` {problem}")

    def value(self, key: str, kind: type[T], form: str, *, required: bool = False) -> T | None:
        """The value of a key; None where there is none of that type."""
        value = self.entries.get(key)
        if value is None:
            if required:
                self.report(key, "is missing")
            return None
        # `bool` is a subclass of `int`, but `true` is no version.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.report(key, f"is not {form}")
            return None
        return value

    def optional(
        self, key: str, pattern: re.Pattern[str] = _ANY, form: str = "", *, required: bool = False
    ) -> str | None:
        """A string that the pattern fits."""
        value = self.value(key, str, "a string", required=required)
        if value and not pattern.fullmatch(value):
            self.report(key, f"is `{value}`: write {form}")
        return value

    def text(self, key: str, pattern: re.Pattern[str] = _ANY, form: str = "") -> str:
        """A string that has to be there."""
        return self.optional(key, pattern, form, required=True) or ""

    def number(self, key: str) -> int:
        """A whole number that has to be there."""
        value = self.value(key, int, "a whole number", required=True)
        if value is not None and value < 0:
            self.report(key, "is negative")
        return value or 0

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...] | None:
        """A list of strings."""
        value = self.value(key, list, "a list of strings", required=required)
        if value is None:
            return None
        if not all(isinstance(item, str) for item in value):
            self.report(key, "is not a list of strings")
        return tuple(str(item) for item in value)

    def part(self, key: str, *, required: bool = False) -> _JsonPart:
        """An object; empty where there is none."""
        entries = self.value(key, dict, "an object", required=required) or {}
        return _JsonPart(entries, f"{self.prefix}{key}.", self.problems)

    def mapping(self, key: str, form: str, *, required: bool = False) -> dict[str, str]:
        """An object whose values are strings."""
        entries = self.part(key, required=required).entries
        if not all(isinstance(value, str) for value in entries.values()):
            self.report(key, f"does not map {form}")
        return {name: str(value) for name, value in entries.items()}


def _read_document(top: _JsonPart) -> Metadata:
    backend = top.part("backend", required=True)
    listed = top.value("kernel-depends", list, "a list") or ()
    return Metadata(
        name=top.text("name", NAME, "lower-case letters, digits and dashes"),
        id=top.text("id"),
        version=top.number("version"),
        kernels_minver=top.optional("kernels-minver", MINVER, "three parts, `0.17.0`"),
        license=top.text("license"),
        upstream=top.optional("upstream", URL, "a git URL"),
        source=top.optional("source", URL, "a git URL"),
        python_depends=top.texts("python-depends", required=True) or (),
        kernel_depends=tuple(_dependency(top, at, item) for at, item in enumerate(listed)),
        backend=backend.text("type"),
        archs=backend.texts("archs"),
        digest=_digest(top),
        provenance=_provenance(top),
    )


def _dependency(top: _JsonPart, index: int, item: object) -> KernelDependency:
    label = f"kernel-depends[{index}]"
    if not isinstance(item, dict):
        top.report(label, "is not an object")
        return KernelDependency("")
    part = _JsonPart(item, f"{label}.", top.problems)
    if unknown := sorted(item.keys() - {"repo-id", "version", "revision"}):
        part.report(unknown[0], "is not a key of a dependency")
    if ("version" in item) == ("revision" in item):
        top.report(label, "has either a `version` or a `revision`")
    version = part.number("version") if "version" in item else None
    return KernelDependency(part.text("repo-id"), version, part.optional("revision"))


def _digest(top: _JsonPart) -> Mapping[str, Any] | None:
    if top.entries.get("digest") is None:
        return None
    digest = top.part("digest")
    digest.text("algorithm", ALGORITHM, "one of sha256, sha512")
    files = digest.mapping("files", "paths to strings", required=True)
    return {"algorithm": digest.entries.get("algorithm"), "files": files}


def _provenance(top: _JsonPart) -> Provenance | None:
    if top.entries.get("provenance") is None:
        return None
    provenance = top.part("provenance")
    builder, kernel = provenance.part("kernel-builder", required=True), provenance.part("kernel")
    has_git = any(builder.entries.get(key) is not None for key in ("commit", "sha", "dirty"))
    used = builder.part("toolchain")
    read = Builder(
        version=builder.text("version") if builder.entries else "",
        name=str(builder.entries.get("name", "kernel-builder")),
        git=_git_state(builder) if has_git else None,
        toolchain=UsedToolchain(
            source=used.text("source"),
            versions=used.mapping("versions", "names to strings", required=True),
        )
        if used.entries
        else None,
        sandbox=builder.optional("sandbox") or "",
        overruled=builder.mapping("overruled", "checks to reasons"),
        not_run=builder.texts("not-run") or (),
    )
    return Provenance(read, _git_state(kernel) if kernel.entries else None)


def _git_state(part: _JsonPart) -> GitState:
    key = "sha" if "sha" in part.entries else "commit"
    commit = part.text(key, COMMIT, "40 or 64 hex digits")
    dirty = part.value("dirty", bool, "true or false", required=True)
    return GitState(commit.lower(), bool(dirty))
