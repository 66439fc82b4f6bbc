"""A shared cache in memory whose store fails, waits or lies as a test wants it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kbuild.errors import HubError
from kbuild.runtime.remote_cache import RemoteCache


@dataclass
class DictStore:
    """See `RemoteStore`."""

    shown: str = "dict://cache"
    files: dict[str, bytes] = field(default_factory=dict)
    delay: float = 0.0
    is_down: bool = False
    is_full: bool = False
    reads: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, path: str, limit: int) -> bytes | None:
        with self.lock:
            self.reads.append(path)
        time.sleep(self.delay)
        if self.is_down:
            raise HubError("connection refused")
        data = self.files.get(path)
        assert data is None or len(data) <= limit
        return data

    def write(self, path: str, data: bytes) -> None:
        time.sleep(self.delay)
        if self.is_down or self.is_full:
            raise HubError("no space is left")
        self.files[path] = data

    def cache(self, warn: Callable[[str], None] = print, **options: object) -> RemoteCache:
        """The store as one command uses it."""
        return RemoteCache(lambda: self, self.shown, warn, **options)  # type: ignore[arg-type]


def stored(cache: RemoteCache, **contents: bytes) -> None:
    """Put files into a cache, and wait until they are there."""
    for name, content in contents.items():
        cache.put(lambda name=name, content=content: [(name, content)])  # type: ignore[misc]
    cache.finish()
