"""Images and descriptions that were made before.

Images lie among the objects that compilers made (`kbuild.build.objectcache`), and are kept within
the same bounds:

    <cache>/objects/<kk>/<key>/image.d     the image's facts, and the digest of its code
                              image.o     the code
                              image.err   nothing: every object has one
    <cache>/described/<kk>/<key>           what a worker said of a source's functions

An entry is complete when its `.d` is there, which is renamed into place last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.fileset import replace_atomically
from kbuild.languages.image import Image
from kbuild.untrusted import read_json, reading, remembered

_FORMAT = 1


@dataclass(frozen=True)
class Made:
    """What a unit came to."""

    image: Image | None
    """None when it does not fit its target."""
    code: bytes
    reason: str = ""
    """Why it does not fit."""


@dataclass(frozen=True)
class ImageCache:
    """The entries below kbuild's cache folder; without a folder nothing is kept."""

    folder: Path | None

    def find(self, key: str) -> Made | None:
        """What was kept; a damaged entry is taken away."""
        if self.folder is None:
            return None
        stem = self._stem(key)
        record = stem.with_suffix(".d")
        try:
            made = _read(record, stem.with_suffix(".o"))
        except FileNotFoundError:
            return None
        except (OSError, DamagedFileError):
            with suppress(OSError):
                record.unlink()
            return None
        with suppress(OSError):
            os.utime(record)
        return made

    def keep(self, key: str, made: Made) -> None:
        """Keep it; a disk that is full or not ours only costs the next run's time."""
        if self.folder is None:
            return
        stem = self._stem(key)
        facts = made.image.to_json() if made.image else None
        record = {"format": _FORMAT, "code": _digest(made.code), "image": facts}
        text = json.dumps({**record, "reason": made.reason})
        with suppress(OSError):
            stem.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(stem.with_suffix(".o"), made.code)
            replace_atomically(stem.with_suffix(".err"), b"")
            replace_atomically(stem.with_suffix(".d"), text.encode())

    def described(self, key: str) -> Mapping[str, Any] | None:
        """What was kept of a source's functions."""
        if self.folder is None:
            return None
        file = self._description(key)
        answer = remembered(file, lambda told: {**told, "functions": told["functions"]})
        if answer is None:
            return None
        with suppress(OSError):
            os.utime(file)
        return answer

    def keep_described(self, key: str, answer: Mapping[str, Any]) -> None:
        """See `keep`."""
        if self.folder is None:
            return
        file = self._description(key)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(file, json.dumps(answer).encode())

    def _stem(self, key: str) -> Path:
        return Path(self.folder or "", "objects", key[:2], key[2:], "image")

    def _description(self, key: str) -> Path:
        return Path(self.folder or "", "described", key[:2], key[2:])


def _read(record: Path, code: Path) -> Made:
    with reading(record, "a kept image"):
        facts = read_json(record, "a kept image")
        if facts["format"] != _FORMAT:
            raise ValueError(f"format {facts['format']}")
        data = code.read_bytes()
        if _digest(data) != facts["code"]:
            raise ValueError(f"{code} is damaged")
        image = Image.from_json(facts["image"]) if facts["image"] else None
        return Made(image, data, str(facts["reason"]))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
