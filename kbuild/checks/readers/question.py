"""What a probe is asked, as a name: two questions have one name only when they have one answer."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kbuild.checks.readers.sandbox import passed, program
from kbuild.fileset import sha256, sha256_of_file
from kbuild.installation import package_digest

_CPUINFO = Path("/proc/cpuinfo")
_CPU = re.compile(rb"^(?:vendor_id|model name|flags|CPU \w+|Features)\s*:.*$", re.MULTILINE)
_DEVICES = ("nvidia[0-9]*", "kfd", "dri/*")


@dataclass(frozen=True)
class Question:
    """One call of a probe."""

    python: Path
    probe: str
    arguments: tuple[str | Path, ...]
    """Paths stand for what they lead to."""
    general: tuple[str, ...] = ()
    """What decides when no byte does: for answers that many kernels share."""
    cache: Path | None = None
    """kbuild's cache folder."""

    @cached_property
    def general_name(self) -> str | None:
        """The same whatever the probe is to look at; None when there is no general answer."""
        return _named([*self._around, "general", self.general]) if self.general else None

    @cached_property
    def name(self) -> str | None:
        """The question about exactly these bytes; None when they cannot all be read."""
        try:
            exact = [
                {"bytes": contents(part)} if isinstance(part, Path) else part
                for part in self.arguments
            ]
        except OSError:
            return None
        return _named([*self._around, "exact", exact])

    def is_named_in(self, facts: Mapping[str, Any]) -> bool:
        """True when an answer speaks of the place, which says nothing about another."""
        text = json.dumps(facts, ensure_ascii=False)
        paths = (part for part in self.arguments if isinstance(part, Path))
        return any(str(path.resolve()) in text for path in paths)

    @cached_property
    def _around(self) -> list[Any]:
        """Of its surroundings, whatever a probe gets."""
        asked = [package_digest(self.cache), self.probe, str(self.python)]
        return [*asked, sorted(passed().items()), bool(program()), *_machine()]


def _named(asked: list[Any]) -> str:
    return sha256(json.dumps(asked).encode())


def _machine() -> Iterator[Any]:
    """Processor, kernel and devices: a cache may be shared between machines."""
    yield (platform.machine(), platform.release())
    try:
        with _CPUINFO.open("rb") as file:
            first = file.read(8192).partition(b"\n\n")[0]
    except OSError:
        first = b""
    yield [line.decode(errors="replace") for line in _CPU.findall(first)]
    yield sorted(str(path) for pattern in _DEVICES for path in Path("/dev").glob(pattern))


def contents(root: Path) -> str:
    """Names and bytes of every file, following links to files.

    Raises:
        OSError: one cannot be read, or a folder is a link, which may lead anywhere, or a name is
            that of a pipe or device.
    """
    found = hashlib.sha256()
    for path in sorted(_files(root)):
        name = os.fsencode(path.relative_to(root))
        found.update(b"%d:%s%s" % (len(name), name, sha256_of_file(path).encode()))
    return found.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for base, folders, names in os.walk(root, onerror=_refuse):
        if any(Path(base, name).is_symlink() for name in folders):
            raise OSError(f"`{base}` holds a link to a folder")
        for path in (Path(base, name) for name in names):
            if not path.is_file():
                raise OSError(f"`{path}` is no file")
            yield path


def _refuse(error: OSError) -> None:
    raise error
