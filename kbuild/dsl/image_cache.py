"""Results of compiling units: their cache, kernels that units share, and rejections."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kbuild.ops.image import KernelImage, UnitImage
from kbuild.ops.language import LANGUAGES, usual_label
from kbuild.ops.unit import KernelUnit
from kbuild.system.cache import DESCRIPTIONS, IMAGES, Cache
from kbuild.system.errors import BuildError
from kbuild.system.untrusted import parse_json, reading

_MAX_REASONS = 5
"""Number of rejection reasons that an error shows in full."""


@dataclass(frozen=True)
class Rejection:
    """The reason why a worker compiled nothing, with the author's line where it is known."""

    message: str
    file: str = ""
    line: int = 0
    hint: str = ""
    excerpt: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Rejection:
        """Parse a rejection from a worker's JSON."""
        return cls(**{**data, "excerpt": tuple(data["excerpt"])})

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return f"{place}{self.message}"


def rejection_error(
    kernel: str, refused: Sequence[tuple[KernelUnit, Rejection]], units: int
) -> BuildError:
    """One error for all rejected units, which names each reason once."""
    reasons: dict[Rejection, list[KernelUnit]] = {}
    for unit, refusal in refused:
        reasons.setdefault(refusal, []).append(unit)
    first = next(iter(reasons))
    excerpt: list[str] = []
    for refusal, affected in list(reasons.items())[:_MAX_REASONS]:
        more = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
        excerpt += [*(() if refusal is first else (str(refusal),)), *refusal.excerpt]
        excerpt.append(f"({unit_label(affected[0])}{more})")
    if len(reasons) > _MAX_REASONS:
        excerpt.append(f"... and {len(reasons) - _MAX_REASONS} other reasons")
    count = f" ({len(refused)} of {units} units)" if units > 1 else ""
    return BuildError(f"kernel.{kernel}: {first}{count}", excerpt=excerpt, hint=first.hint)


def unit_label(unit: KernelUnit) -> str:
    """Short description of a unit for messages: function, target, dtypes, constants."""
    # A worker of a cluster may lack the plug-in that has the language.
    language = LANGUAGES.find(unit.language)
    return " ".join(language.label(unit) if language else usual_label(unit))


NoteCallback = Callable[[str], None]
PRUNED = "the kernel's `early_config_prune` drops it for these constants"
"""Reason of a unit that the author's pruning function drops."""


@dataclass(frozen=True)
class UnitOutcome:
    """The result of compiling a unit."""

    unit: KernelUnit
    compiled: UnitImage | None
    """None when there is no image."""
    reason: str = ""


CallKind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]


def call_kind(unit: KernelUnit) -> CallKind:
    """The calls that a unit is for: dtypes of the given tensors, and names of the others."""
    return tuple(pair for pair in unit.dtypes if pair[0] not in unit.absent), unit.absent


def compiled_images(
    kernel: str, outcomes: Sequence[UnitOutcome], note: NoteCallback
) -> tuple[UnitImage, ...]:
    """Return the images; `note` gets a sentence for each unit without one.

    Raises:
        BuildError: a launch has no image for one of its targets and sets of dtypes.
    """
    images = [outcome.compiled for outcome in outcomes if outcome.compiled is not None]
    served = {_launch_of(image.unit) for image in images}
    without_image = [outcome for outcome in outcomes if outcome.compiled is None]
    for outcome in without_image:
        if _launch_of(outcome.unit) not in served:
            what = f"kernel.{kernel}: no image of {unit_label(outcome.unit)} fits: {outcome.reason}"
            hint = "add a smaller candidate, or leave the arch out with `archs`"
            raise BuildError(what, hint=hint)
    for outcome in without_image:
        note(f"kernel.{kernel}: {unit_label(outcome.unit)}: left out, {outcome.reason}")
    return tuple(images)


def _launch_of(unit: KernelUnit) -> tuple[str, int, str, CallKind]:
    return unit.op, unit.launch, str(unit.target), call_kind(unit)


@dataclass(frozen=True)
class CompileResult:
    """The image of a unit, or why there is none."""

    image: KernelImage | None
    """None when the unit fits no device of its target, or was pruned."""
    code: bytes
    reason: str = ""


@dataclass(frozen=True)
class ImageCache:
    """The images and descriptions in kbuild's cache folder; without a folder, nothing is kept."""

    folder: Path | None

    def find(self, key: str) -> CompileResult | None:
        """The cached result of that key, which may be that there is no image; None when unknown."""
        return self._images.get_parsed(key, lambda parts: parse_image_entry(*parts, name=key))

    def keep(self, key: str, result: CompileResult) -> None:
        """Store the result of a unit."""
        facts = result.image.to_json() if result.image else None
        record = {"code": _code_digest(result.code), "image": facts, "reason": result.reason}
        self._images.put(key, json.dumps(record).encode(), result.code)

    def remove(self, key: str) -> None:
        """Remove an image."""
        self._images.remove(key)

    def entry(self, key: str) -> tuple[bytes, bytes] | None:
        """The record and the code of an image, to be kept elsewhere."""
        parts = self._images.get(key)
        return None if parts is None else (parts[0], parts[1])

    def described(self, key: str) -> Mapping[str, Any] | None:
        """The cached description of a source's functions; None when there is none."""
        return self._descriptions.get_json(key, lambda d: {**d, "functions": d["functions"]})

    def keep_described(self, key: str, answer: Mapping[str, Any]) -> None:
        """Store a description."""
        self._descriptions.put_json(key, answer)

    @property
    def _images(self) -> Cache:
        return Cache(self.folder, IMAGES)

    @property
    def _descriptions(self) -> Cache:
        return Cache(self.folder, DESCRIPTIONS)


def parse_image_entry(record: bytes, data: bytes, *, name: str) -> CompileResult:
    """Parse an image from its record and its code.

    Raises:
        DamagedFileError: they are damaged or do not belong together; `name` is the entry's.
    """
    with reading(name, "a compiled image"):
        facts = parse_json(record, name, "a compiled image")
        if _code_digest(data) != facts["code"]:
            raise ValueError("its code is damaged")
        image = KernelImage.from_json(facts["image"]) if facts["image"] else None
        return CompileResult(image, data, str(facts["reason"]))


def _code_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ResultT = TypeVar("ResultT")


def claim_future(known: dict[str, Future[ResultT]], key: str) -> tuple[Future[ResultT], bool]:
    """The future with that key, and True for the caller that creates it and so has to fulfil it."""
    # Callers hold their lock: no other thread may claim the key between these two lines.
    is_new = key not in known
    return known.setdefault(key, Future()), is_new


@contextmanager
def fulfilling(future: Future[ResultT]) -> Iterator[None]:
    """Set an exception in the block on the future too, so that waiting threads get it."""
    try:
        yield
    except BaseException as error:
        future.set_exception(error)
        raise


class SharedKernels:
    """The kernels that a run compiles once, by key. Safe to use from several threads."""

    def __init__(self, cache: ImageCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._known: dict[str, Future[CompileResult | Rejection]] = {}

    def claim(self, key: str) -> tuple[Future[CompileResult | Rejection], bool]:
        """The future of a kernel, and True when the caller has to compile it."""
        with self._lock:
            future, is_ours = claim_future(self._known, key)
        # Outside of the lock: only the thread that has claimed the key reads the file.
        result = self._cache.find(key) if is_ours else None
        if result is not None:
            future.set_result(result)
        return future, is_ours and result is None

    def keep(self, key: str, result: CompileResult | Rejection) -> None:
        """Store a compiled kernel; rejections are not stored."""
        if isinstance(result, CompileResult):
            self._cache.keep(key, result)

    def forget(self, key: str) -> None:
        """Let the next caller that claims the kernel compile it."""
        with self._lock:
            self._known.pop(key, None)


class KernelClaim:
    """The link between one unit and the kernel that it shares with other units."""

    def __init__(self, kernels: SharedKernels, key_of: Callable[[str], str]) -> None:
        """`key_of` returns the key of a kernel, given a worker's digest of it."""
        self._kernels, self._key_of = kernels, key_of
        self._key = ""
        self._future: Future[CompileResult | Rejection] | None = None
        self.is_ours = True
        """True if this unit compiles the kernel; otherwise another unit does, or it was cached."""

    def makes(self, kernel: str) -> bool:
        """True if the worker has to compile the kernel with that digest."""
        # A worker that died is replaced, and the new one asks again; its digest should be the same.
        key = self._key_of(kernel)
        if key != self._key:
            self.fail(LookupError(f"the name of the kernel has changed: {self._key}"))
            self._key = key
            self._future, self.is_ours = self._kernels.claim(key)
        return self.is_ours

    def settle(self, own: CompileResult | Rejection) -> Future[CompileResult | Rejection]:
        """Return a future of the unit's image; another unit may compile its code.

        `own` is the worker's answer, which has no code in that case.
        """
        joined: Future[CompileResult | Rejection] = Future()
        if self._future is not None and not self.is_ours:
            self._future.add_done_callback(lambda theirs: _join_results(joined, own, theirs))
            return joined
        if self._future is not None:
            self._kernels.keep(self._key, own)
            with suppress(InvalidStateError):  # the run ended meanwhile
                self._future.set_result(own)
        joined.set_result(own)
        return joined

    def fail(self, error: BaseException) -> None:
        """Fail the kernel that this unit had to compile, so that units waiting for it fail too."""
        if self._future is not None and self.is_ours and not self._future.done():
            # Before the exception is set: whoever claims the kernel from now on compiles it anew.
            self._kernels.forget(self._key)
            with suppress(InvalidStateError):
                self._future.set_exception(error)


def _join_results(
    joined: Future[CompileResult | Rejection],
    own: CompileResult | Rejection,
    theirs: Future[CompileResult | Rejection],
) -> None:
    """Set another unit's result with this unit's constants; everything else is equal."""
    error = theirs.exception()
    if error is not None:
        joined.set_exception(error)
        return
    result = theirs.result()
    if isinstance(own, Rejection) or isinstance(result, Rejection):
        joined.set_result(own if isinstance(own, Rejection) else result)
    elif own.image is None or result.image is None:
        joined.set_result(CompileResult(None, b"", result.reason or own.reason))
    else:
        image = replace(result.image, constants=own.image.constants)
        joined.set_result(CompileResult(image, result.code))
