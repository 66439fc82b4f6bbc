"""From the text of a `metadata.json` to the value, with every problem in one go."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kbuild.errors import DamagedFileError
from kbuild.metadata.model import (
    ALGORITHMS,
    BACKEND_TYPES,
    METADATA_FILE,
    Builder,
    GitState,
    KernelDependency,
    Metadata,
    MetadataError,
    Provenance,
    UsedToolchain,
)
from kbuild.untrusted import parse_json, read_bytes, reason_of

NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
MINVER = re.compile(r"\d+\.\d+\.\d+")
URL = re.compile(r"(?:(?:git\+)?(?:https?|ssh)|git)://\S+|[\w.-]+@[\w.-]+:\S+")

_KIND = "metadata of a variant"

T = TypeVar("T")
Part = Mapping[str, Any]


def read_metadata(variant: Path) -> Metadata:
    """What the folder of a variant says of itself.

    Raises:
        MetadataError: with every reason why the `kernels` client would not read it either.
        OSError: the file cannot be read.
    """
    path = variant / METADATA_FILE
    return _understood(lambda: parse(read_bytes(path, _KIND)))


def overruled_in(variant: Path) -> Mapping[str, str] | None:
    """The checks that the folder of a variant says are overruled; None when it cannot be read."""
    try:
        return read_metadata(variant).overruled
    except (MetadataError, OSError):
        return None


def parse(data: str | bytes) -> Metadata:
    """Read a `metadata.json`.

    Raises:
        MetadataError: with every reason why the `kernels` client would not read it either.
    """
    document = _understood(lambda: parse_json(data, METADATA_FILE, _KIND))
    reader = _Reader(document)
    metadata = reader.metadata()
    if reader.problems:
        raise MetadataError(tuple(reader.problems))
    return metadata


def _understood(read: Callable[[], T]) -> T:
    try:
        return read()
    except MetadataError:
        raise
    except DamagedFileError as error:
        raise MetadataError((reason_of(error),)) from error


class _Reader:
    """Collects problems while it reads; what it returns counts only when there are none."""

    def __init__(self, document: Part) -> None:
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
            backend=self._choice(backend, "type", BACKEND_TYPES, "backend."),
            archs=self._texts(backend, "archs", prefix="backend."),
            digest=self._digest(),
            provenance=self._provenance(),
        )

    def _value(
        self, part: Part, key: str, kind: type[T], words: str, *, required: bool, prefix: str = ""
    ) -> T | None:
        value = part.get(key)
        if value is None:
            if required:
                self.problems.append(f"`{prefix}{key}` is missing")
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.problems.append(f"`{prefix}{key}` is not {words}")
            return None
        return value

    def _matching(self, value: str, pattern: re.Pattern[str], words: str, label: str) -> str:
        if not pattern.fullmatch(value):
            self.problems.append(f"`{label}` is `{value}`: write {words}")
        return value

    def _text(
        self,
        part: Part,
        key: str,
        pattern: re.Pattern[str] | None = None,
        words: str = "",
        prefix: str = "",
    ) -> str:
        value = self._value(part, key, str, "a string", required=True, prefix=prefix) or ""
        if value and pattern:
            return self._matching(value, pattern, words, prefix + key)
        return value

    def _optional(self, part: Part, key: str, pattern: re.Pattern[str], words: str) -> str | None:
        value = self._value(part, key, str, "a string", required=False)
        return None if value is None else self._matching(value, pattern, words, key)

    def _number(self, part: Part, key: str, *, required: bool = True, prefix: str = "") -> int:
        value = self._value(part, key, int, "a whole number", required=required, prefix=prefix)
        if value is not None and value < 0:
            self.problems.append(f"`{prefix}{key}` is negative")
        return value or 0

    def _texts(
        self, part: Part, key: str, *, required: bool = False, prefix: str = ""
    ) -> tuple[str, ...] | None:
        value = self._value(part, key, list, "a list of strings", required=required, prefix=prefix)
        if value is None:
            return None
        if not all(isinstance(item, str) for item in value):
            self.problems.append(f"`{prefix}{key}` is not a list of strings")
        return tuple(str(item) for item in value)

    def _choice(self, part: Part, key: str, allowed: tuple[str, ...], prefix: str) -> str:
        value = self._text(part, key, prefix=prefix)
        if value and value not in allowed:
            listed = ", ".join(allowed)
            self.problems.append(f"`{prefix}{key}` is `{value}`: write one of {listed}")
        return value

    def _object(self, part: Part, key: str, *, required: bool = False, prefix: str = "") -> Part:
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

    def _digest(self) -> Part | None:
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
        whole = self._object(self.document, "provenance")
        prefix = "provenance.kernel-builder."
        made = self._object(whole, "kernel-builder", required=True, prefix="provenance.")
        has_git = any(made.get(key) is not None for key in ("commit", "sha", "dirty"))
        builder = Builder(
            version=self._text(made, "version", prefix=prefix) if made else "",
            name=str(made.get("name", "kernel-builder")),
            git=self._git(made, prefix) if has_git else None,
            toolchain=self._toolchain(made, prefix),
            sandbox=self._value(made, "sandbox", str, "a string", required=False, prefix=prefix)
            or "",
            overruled=self._overruled(made, prefix),
        )
        kernel = self._object(whole, "kernel", prefix="provenance.")
        return Provenance(builder, self._git(kernel, "provenance.kernel.") if kernel else None)

    def _toolchain(self, made: Part, prefix: str) -> UsedToolchain | None:
        used = self._object(made, "toolchain", prefix=prefix)
        if not used:
            return None
        prefix = f"{prefix}toolchain."
        versions = self._object(used, "versions", required=True, prefix=prefix)
        if not all(isinstance(value, str) for value in versions.values()):
            self.problems.append(f"`{prefix}versions` does not map names to strings")
        source = self._text(used, "source", prefix=prefix)
        return UsedToolchain(source, {name: str(value) for name, value in versions.items()})

    def _overruled(self, made: Part, prefix: str) -> Mapping[str, str]:
        found = self._object(made, "overruled", prefix=prefix)
        if not all(isinstance(reason, str) for reason in found.values()):
            self.problems.append(f"`{prefix}overruled` does not map checks to reasons")
        return {check: str(reason) for check, reason in found.items()}

    def _git(self, part: Part, prefix: str) -> GitState:
        key = "sha" if "sha" in part else "commit"
        commit = self._text(part, key, COMMIT, "40 or 64 hex digits", prefix)
        dirty = self._value(part, "dirty", bool, "true or false", required=True, prefix=prefix)
        return GitState(commit.lower(), bool(dirty))
