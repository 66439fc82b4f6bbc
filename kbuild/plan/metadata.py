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
ALGORITHMS = ("sha256", "sha512")


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
URL = re.compile(r"(?:(?:git\+)?(?:https?|ssh)|git)://\S+|[\w.-]+@[\w.-]+:\S+")

_FILE_KIND = "metadata of a variant"

T = TypeVar("T")
JsonObject = Mapping[str, Any]


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
    reader = _MetadataReader(document)
    metadata = reader.metadata()
    if reader.problems:
        raise MetadataError(tuple(reader.problems))
    return metadata


def _as_metadata_error(read: Callable[[], T]) -> T:
    try:
        return read()
    except MetadataError:
        raise
    except DamagedFileError as error:
        raise MetadataError((reason_of(error),)) from error


class _MetadataReader:
    """Reads the document and collects its problems; the values count only if there are none."""

    def __init__(self, document: JsonObject) -> None:
        self.document = document
        self.problems: list[str] = []

    def metadata(self) -> Metadata:
        top = self.document
        backend = self._object(top, "backend", required=True)
        return Metadata(
            name=self._text(top, "name", NAME, "lower-case letters, digits and dashes"),
            id=self._text(top, "id"),
            version=self._number(top, "version"),
            kernels_minver=self._optional(top, "kernels-minver", MINVER, "three parts, `0.17.0`"),
            license=self._text(top, "license"),
            upstream=self._optional(top, "upstream", URL, "a git URL"),
            source=self._optional(top, "source", URL, "a git URL"),
            python_depends=self._texts(top, "python-depends", required=True) or (),
            kernel_depends=self._kernel_depends(),
            backend=self._text(backend, "type", prefix="backend."),
            archs=self._texts(backend, "archs", prefix="backend."),
            digest=self._digest(),
            provenance=self._provenance(),
        )

    def _value(
        self,
        part: JsonObject,
        key: str,
        kind: type[T],
        form: str,
        *,
        required: bool,
        prefix: str = "",
    ) -> T | None:
        value = part.get(key)
        if value is None:
            if required:
                self.problems.append(f"`{prefix}{key}` is missing")
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.problems.append(f"`{prefix}{key}` is not {form}")
            return None
        return value

    def _matching(self, value: str, pattern: re.Pattern[str], form: str, label: str) -> str:
        if not pattern.fullmatch(value):
            self.problems.append(f"`{label}` is `{value}`: write {form}")
        return value

    def _text(
        self,
        part: JsonObject,
        key: str,
        pattern: re.Pattern[str] | None = None,
        form: str = "",
        prefix: str = "",
    ) -> str:
        value = self._value(part, key, str, "a string", required=True, prefix=prefix) or ""
        if value and pattern:
            return self._matching(value, pattern, form, prefix + key)
        return value

    def _optional(
        self, part: JsonObject, key: str, pattern: re.Pattern[str], form: str
    ) -> str | None:
        value = self._value(part, key, str, "a string", required=False)
        return None if value is None else self._matching(value, pattern, form, key)

    def _number(self, part: JsonObject, key: str, *, prefix: str = "") -> int:
        value = self._value(part, key, int, "a whole number", required=True, prefix=prefix)
        if value is not None and value < 0:
            self.problems.append(f"`{prefix}{key}` is negative")
        return value or 0

    def _texts(
        self, part: JsonObject, key: str, *, required: bool = False, prefix: str = ""
    ) -> tuple[str, ...] | None:
        value = self._value(part, key, list, "a list of strings", required=required, prefix=prefix)
        if value is None:
            return None
        if not all(isinstance(item, str) for item in value):
            self.problems.append(f"`{prefix}{key}` is not a list of strings")
        return tuple(str(item) for item in value)

    def _choice(self, part: JsonObject, key: str, allowed: tuple[str, ...], prefix: str) -> str:
        value = self._text(part, key, prefix=prefix)
        if value and value not in allowed:
            listed = ", ".join(allowed)
            self.problems.append(f"`{prefix}{key}` is `{value}`: write one of {listed}")
        return value

    def _object(
        self, part: JsonObject, key: str, *, required: bool = False, prefix: str = ""
    ) -> JsonObject:
        return self._value(part, key, dict, "an object", required=required, prefix=prefix) or {}

    def _kernel_depends(self) -> tuple[KernelDependency, ...]:
        listed = self._value(self.document, "kernel-depends", list, "a list", required=False)
        return tuple(self._dependency(i, item) for i, item in enumerate(listed or ()))

    def _dependency(self, index: int, item: object) -> KernelDependency:
        label = f"kernel-depends[{index}]"
        if not isinstance(item, dict):
            self.problems.append(f"`{label}` is not an object")
            return KernelDependency("")
        if unknown := sorted(set(item) - {"repo-id", "version", "revision"}):
            self.problems.append(f"`{label}.{unknown[0]}` is not a key of a dependency")
        if ("version" in item) == ("revision" in item):
            self.problems.append(f"`{label}` has either a `version` or a `revision`")
        return KernelDependency(
            self._text(item, "repo-id", prefix=f"{label}."),
            self._number(item, "version", prefix=f"{label}.") if "version" in item else None,
            self._value(item, "revision", str, "a string", required=False, prefix=f"{label}."),
        )

    def _digest(self) -> JsonObject | None:
        if self.document.get("digest") is None:
            return None
        digest = self._object(self.document, "digest")
        self._choice(digest, "algorithm", ALGORITHMS, "digest.")
        files = self._object(digest, "files", required=True, prefix="digest.")
        if not all(isinstance(value, str) for value in files.values()):
            self.problems.append("`digest.files` does not map paths to strings")
        return {"algorithm": digest.get("algorithm"), "files": dict(files)}

    def _provenance(self) -> Provenance | None:
        if self.document.get("provenance") is None:
            return None
        entry = self._object(self.document, "provenance")
        prefix = "provenance.kernel-builder."
        builder_entry = self._object(entry, "kernel-builder", required=True, prefix="provenance.")
        has_git = any(builder_entry.get(key) is not None for key in ("commit", "sha", "dirty"))
        builder = Builder(
            version=self._text(builder_entry, "version", prefix=prefix) if builder_entry else "",
            name=str(builder_entry.get("name", "kernel-builder")),
            git=self._git(builder_entry, prefix) if has_git else None,
            toolchain=self._toolchain(builder_entry, prefix),
            sandbox=self._value(
                builder_entry, "sandbox", str, "a string", required=False, prefix=prefix
            )
            or "",
            overruled=self._overruled(builder_entry, prefix),
            not_run=self._texts(builder_entry, "not-run", prefix=prefix) or (),
        )
        kernel = self._object(entry, "kernel", prefix="provenance.")
        return Provenance(builder, self._git(kernel, "provenance.kernel.") if kernel else None)

    def _toolchain(self, builder: JsonObject, prefix: str) -> UsedToolchain | None:
        used = self._object(builder, "toolchain", prefix=prefix)
        if not used:
            return None
        prefix = f"{prefix}toolchain."
        versions = self._object(used, "versions", required=True, prefix=prefix)
        if not all(isinstance(value, str) for value in versions.values()):
            self.problems.append(f"`{prefix}versions` does not map names to strings")
        source = self._text(used, "source", prefix=prefix)
        return UsedToolchain(source, {name: str(value) for name, value in versions.items()})

    def _overruled(self, builder: JsonObject, prefix: str) -> Mapping[str, str]:
        reasons = self._object(builder, "overruled", prefix=prefix)
        if not all(isinstance(reason, str) for reason in reasons.values()):
            self.problems.append(f"`{prefix}overruled` does not map checks to reasons")
        return {check: str(reason) for check, reason in reasons.items()}

    def _git(self, part: JsonObject, prefix: str) -> GitState:
        key = "sha" if "sha" in part else "commit"
        commit = self._text(part, key, COMMIT, "40 or 64 hex digits", prefix)
        dirty = self._value(part, "dirty", bool, "true or false", required=True, prefix=prefix)
        return GitState(commit.lower(), bool(dirty))
