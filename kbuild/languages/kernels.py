"""Kernels that several units come to: each is compiled once, for whoever says its name first.

A unit's constants need not all matter: what is compiled where nothing is aligned may be the same
for every candidate. That is known when the DSL has written the kernel down, and before a compiler
has read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace

from kbuild.languages.cache import ImageCache, Made
from kbuild.languages.refusals import Refusal


class Kernels:
    """All that were named in a run. Safe to use from several threads."""

    def __init__(self, cache: ImageCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._known: dict[str, Future[Made | Refusal]] = {}

    def claim(self, key: str) -> tuple[Future[Made | Refusal], bool]:
        """What becomes of a kernel, and whether the caller has to make it."""
        with self._lock:
            is_ours = key not in self._known
            future = self._known.setdefault(key, Future())
        found = self._cache.find(key) if is_ours else None
        if found is not None:
            future.set_result(found)
        return future, is_ours and found is None

    def keep(self, key: str, made: Made | Refusal) -> None:
        """Remember what was made."""
        if isinstance(made, Made):
            self._cache.keep(key, made)

    def forget(self, key: str) -> None:
        """Let the next who names it make it."""
        with self._lock:
            self._known.pop(key, None)


class Share:
    """One unit's part in a kernel."""

    def __init__(self, kernels: Kernels, key_of: Callable[[str], str]) -> None:
        """Nothing is known of the kernel yet.

        Args:
            kernels: all of them.
            key_of: from what a worker calls a kernel to what it is kept under.
        """
        self._kernels, self._key_of = kernels, key_of
        self._key = ""
        self._future: Future[Made | Refusal] | None = None
        self._is_ours = True

    def makes(self, kernel: str) -> bool:
        """See `Conversation.ask`; asked again after a worker's death."""
        key = self._key_of(kernel)
        if key != self._key:
            self.fail(LookupError(f"the kernel has another name than before: {self._key}"))
            self._key = key
            self._future, self._is_ours = self._kernels.claim(key)
        return self._is_ours

    @property
    def is_elsewhere(self) -> bool:
        """Whether others make the kernel, or have made it."""
        return not self._is_ours

    def settle(self, own: Made | Refusal) -> Future[Made | Refusal]:
        """The unit's image, as soon as its code is there.

        Args:
            own: what the worker said; without code where others make that.
        """
        whole: Future[Made | Refusal] = Future()
        if self._future is not None and not self._is_ours:
            self._future.add_done_callback(lambda theirs: _join(whole, own, theirs))
            return whole
        if self._future is not None:
            self._kernels.keep(self._key, own)
            with suppress(InvalidStateError):  # the run ended meanwhile
                self._future.set_result(own)
        whole.set_result(own)
        return whole

    def fail(self, error: BaseException) -> None:
        """Say that nothing comes of what this unit had to make."""
        if self._future is not None and self._is_ours and not self._future.done():
            self._kernels.forget(self._key)
            with suppress(InvalidStateError):
                self._future.set_exception(error)


def _join(
    whole: Future[Made | Refusal], own: Made | Refusal, theirs: Future[Made | Refusal]
) -> None:
    """What others made, with the unit's own constants; the rest follows from the code."""
    error = theirs.exception()
    if error is not None:
        whole.set_exception(error)
        return
    made = theirs.result()
    if isinstance(own, Refusal) or isinstance(made, Refusal):
        whole.set_result(own if isinstance(own, Refusal) else made)
    elif own.image is None or made.image is None:
        whole.set_result(Made(None, b"", made.reason or own.reason))
    else:
        image = replace(made.image, constants=own.image.constants)
        whole.set_result(Made(image, made.code))
