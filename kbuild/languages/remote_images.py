"""Images and descriptions in the cache that several machines share, below the local one.

    images/<kk>/<key>       an image, or the reason why there is none
    described/<kk>/<key>    what a worker said of a source's functions

The key of either is a digest of everything that it is made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.languages.image_cache import CompileResult, ImageCache
from kbuild.runtime.cache_entries import IMAGE_ENTRY, install_entry, parse_entry, read_entry
from kbuild.runtime.remote_cache import RemoteCache
from kbuild.runtime.untrusted import MAX_DOCUMENT_BYTES


@dataclass(frozen=True)
class RemoteImageCache(ImageCache):
    """The local entries; what they lack is asked of the shared cache, if there is one."""

    remote: RemoteCache | None = None
    _requests: dict[str, Future[bytes | None]] = field(default_factory=dict, compare=False)

    def prefetch(self, keys: Iterable[str]) -> None:
        """Ask for images that are about to be looked up, all at once."""
        if self.remote is None or self.folder is None or not self.remote.is_asked:
            return
        for key in keys:
            if key not in self._requests and not self._stem(key).with_suffix(".d").is_file():
                self._requests[key] = self.remote.request(_image_name(key))

    def find(self, key: str) -> CompileResult | None:
        """See `ImageCache.find`."""
        result = super().find(key)
        if result is not None or self.remote is None or self.folder is None:
            return result
        request = self._requests.pop(key, None)
        data = self.remote.receive(request) if request else self.remote.get(_image_name(key))
        seconds = 0.0
        if data is not None:
            with suppress(DamagedFileError, OSError):
                entry = parse_entry(data, f"{key}/{IMAGE_ENTRY}")
                install_entry(self.folder, entry)
                result, seconds = super().find(key), entry.seconds
        self.remote.count(hit=result is not None, received=len(data or b""), saved=seconds)
        return result

    def send(self, key: str, seconds: float) -> None:
        """Send an image that was just kept, and that took so long."""
        folder = self.folder
        if self.remote is None or folder is None:
            return

        def files() -> list[tuple[str, bytes]]:
            entry = replace(read_entry(folder, key, IMAGE_ENTRY), seconds=seconds)
            return [(_image_name(key), entry.to_bytes())]

        self.remote.put(files)

    def described(self, key: str) -> Mapping[str, Any] | None:
        """See `ImageCache.described`."""
        answer = super().described(key)
        if answer is not None or self.remote is None or self.folder is None:
            return answer
        data = self.remote.get(_description_name(key), limit=MAX_DOCUMENT_BYTES)
        if data is not None:
            with suppress(ValueError, TypeError):
                super().keep_described(key, json.loads(data))
                answer = super().described(key)
        self.remote.count(hit=answer is not None, received=len(data or b""))
        return answer

    def keep_described(self, key: str, answer: Mapping[str, Any]) -> None:
        """See `ImageCache.keep_described`."""
        super().keep_described(key, answer)
        if self.remote is not None and self.folder is not None:
            self.remote.put(lambda: [(_description_name(key), json.dumps(answer).encode())])


def _image_name(key: str) -> str:
    return f"images/{key[:2]}/{key[2:]}"


def _description_name(key: str) -> str:
    return f"described/{key[:2]}/{key[2:]}"
