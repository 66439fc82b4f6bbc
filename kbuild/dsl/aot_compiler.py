"""Compiles units ahead of time: looks images up, compiles the others with workers, stores them.

One compiler serves all variants of a run. A unit that several want at once is compiled once; the
others wait for it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from kbuild.dsl.compile_environment import (
    CompilableKernel,
    CompileEnvironment,
    SourceSnapshot,
    compile_environment,
    read_sources,
)
from kbuild.dsl.devices import device_facts
from kbuild.dsl.environment import DslEnvironments
from kbuild.dsl.image_cache import (
    CompileResult,
    ImageCache,
    KernelClaim,
    NoteCallback,
    Rejection,
    SharedKernels,
    UnitOutcome,
    claim_future,
    compiled_images,
    fulfilling,
    rejection_error,
    unit_label,
)
from kbuild.dsl.worker_client import (
    ANSWER_TIMEOUT,
    CompileLog,
    CompileRequest,
    KernelDescriptions,
    WorkerClient,
)
from kbuild.dsl.workers import WorkerPool
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES, KernelFunction, Language
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.budget import Run
from kbuild.system.errors import IncompleteError
from kbuild.system.executor import LocalExecutor

UnitProgressCallback = Callable[[int, int, str], None]
"""Called with the number of units that are done, the number of all units, and the last one's
label."""


@dataclass(frozen=True)
class ImageRequest:
    """One image that a worker of a language can be asked for."""

    unit: KernelUnit
    request: Mapping[str, Any]
    """JSON object for the worker, which gets the sources in addition."""


class ImageFiller(Protocol):
    """Compiles images elsewhere, for example on other machines."""

    def fill_images(
        self,
        kernel: CompilableKernel,
        sources: SourceSnapshot,
        wanted: Mapping[str, ImageRequest],
        tell: UnitProgressCallback,
    ) -> None:
        """Put images that can be compiled elsewhere into the cache; leave the rest.

        Does not raise when that fails: this machine then compiles the images.
        """

    def compare_image(self, key: str, result: CompileResult) -> None:
        """Compare an image that was compiled here with the one compiled elsewhere, if any."""


@dataclass(frozen=True)
class _PendingUnit:
    """A unit that a call of `AotCompiler` waits for."""

    unit: KernelUnit
    key: str
    asked: CompileRequest
    result: Future[CompileResult | Rejection]
    is_ours: bool
    """True if this call has to compile the unit; otherwise another call does, or it was cached."""
    share: KernelClaim
    """The unit's share in a compiled kernel, which several units may have in common."""


class AotCompiler:
    """Compiles units for all variants of one run. Safe to use from several threads."""

    def __init__(
        self,
        run: Run,
        environments: DslEnvironments,
        language: Callable[[str], Language] = LANGUAGES.get,
        patience: float = ANSWER_TIMEOUT,
        filler: ImageFiller | None = None,
    ) -> None:
        """Start nothing yet; a unit may take `patience` seconds.

        `filler` is asked for images before this machine compiles what is missing in the cache.
        """
        self._filler = filler
        self._run, self._environments, self._language = run, environments, language
        cache = run.cache if run.keeps else None
        self._cache = ImageCache(cache)
        self._kernels = SharedKernels(self._cache)
        self._folder = run.folder / "languages"
        self._pool = WorkerPool(run.budget.jobs, self._folder / "workers")
        self._client, self._log = WorkerClient(run, self._pool, patience), CompileLog(str(run.log))
        self._descriptions = KernelDescriptions(self._client, self._cache, self._folder / "sources")
        self._lock = threading.Lock()
        self._places: dict[tuple[str, tuple[str, ...], str], CompileEnvironment] = {}
        self._results: dict[str, Future[CompileResult | Rejection]] = {}
        self._seconds: dict[str, float] = {}
        """Key of each unit that was compiled in this run -> seconds that it took."""
        self._reported: set[str] = set()

    def prepare(self, kernel: CompilableKernel) -> CompileEnvironment:
        """Return the environment that compiles the kernel, after installing what is missing.

        Raises:
            ToolchainError: the toolchain cannot be used or installed.
        """
        key = (kernel.language, tuple(kernel.toolchain), kernel.flavour)
        with self._lock:
            known = self._places.get(key)
        if known is None:
            # Outside of the lock: an installation takes long, and the store has a lock for it.
            known = compile_environment(kernel, self._language(kernel.language), self._environments)
            with self._lock:
                self._places[key] = known
        return known

    def describe(
        self, kernel: CompilableKernel, root: Path, targets: Sequence[ImageTarget] = ()
    ) -> Mapping[str, KernelFunction]:
        """Return the kernel functions that the first source defines for `targets`.

        Raises:
            BuildError: they cannot be imported, or differ between targets.
            ToolchainError: see `prepare`.
        """
        place, sources = self.prepare(kernel), read_sources(kernel, root)
        return self._descriptions.describe(kernel, place, sources, targets)

    def compile(
        self,
        kernel: CompilableKernel,
        root: Path,
        wanted: Sequence[tuple[KernelUnit, BoundLaunch]],
        tell: UnitProgressCallback = lambda *_: None,
        note: NoteCallback = lambda _: None,
    ) -> tuple[UnitImage, ...]:
        """Return every unit's image, in the order of `wanted`.

        Images that do not fit their target are left out, and `note` gets the reason. It is an error
        if nothing is left for a launch on a target with certain dtypes.

        Raises:
            BuildError: units cannot be compiled, by their authors' lines, or nothing is left.
            IncompleteError: the run ended before all were compiled.
            ToolchainError: see `prepare`.
        """
        return compiled_images(kernel.name, self.outcomes(kernel, root, wanted, tell), note)

    def outcomes(
        self,
        kernel: CompilableKernel,
        root: Path,
        wanted: Sequence[tuple[KernelUnit, BoundLaunch]],
        tell: UnitProgressCallback = lambda *_: None,
        variant: str = "",
    ) -> tuple[UnitOutcome, ...]:
        """Return the outcome of each unit, in the order of `wanted`; see `compile` for errors.

        The log of the run names `variant` as the one that they are compiled for.

        Raises:
            BuildError: units cannot be compiled, by their authors' lines.
            IncompleteError: the run ended before all were compiled.
            ToolchainError: see `prepare`.
        """
        place, sources = self.prepare(kernel), read_sources(kernel, root)
        pending_units = [_pending_unit_parts(place, sources, *each) for each in wanted]
        units = [self._claim(place, sources, parts, variant) for parts in pending_units]
        if self._filler is not None and self._run.keeps:
            units = self._filled(kernel, sources, units, tell)
        self._make(units, tell)
        results = [(pending.unit, pending.result.result()) for pending in units]
        refused = [(unit, result) for unit, result in results if isinstance(result, Rejection)]
        if refused:
            raise rejection_error(kernel.name, refused, len(units))
        outcomes = []
        for pending in units:
            result, seconds = pending.result.result(), self._seconds.get(pending.key)
            assert isinstance(result, CompileResult)  # noqa: S101 - the others are refused
            if result.image is None:
                outcomes.append(UnitOutcome(pending.unit, None, result.reason))
                continue
            facts = result.image, result.code, seconds or 0.0, seconds is None
            outcomes.append(UnitOutcome(pending.unit, UnitImage(pending.unit, *facts)))
        return tuple(outcomes)

    def is_news(self, message: str) -> bool:
        """True for a new message: one for several variants is printed once."""
        with self._lock:
            is_new = message not in self._reported
            self._reported.add(message)
        return is_new

    def close(self) -> None:
        """Stop all workers; pending requests fail."""
        self._pool.close()

    def _claim(
        self,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        parts: tuple[KernelUnit, Mapping[str, Any], str],
        variant: str,
    ) -> _PendingUnit:
        unit, request, key = parts
        with self._lock:
            future, is_ours = claim_future(self._results, key)
        # Outside of the lock: only the thread that has claimed the key reads the file.
        result = self._cache.find(key) if is_ours else None
        if result is not None:
            future.set_result(result)
            self._log.record(unit, variant)
        asked = CompileRequest(place, sources, self._folder / "sources", request, variant)
        share = KernelClaim(self._kernels, lambda kernel: place.kernel_key(unit.target, kernel))
        return _PendingUnit(unit, key, asked, future, is_ours and result is None, share)

    def compile_images(
        self, kernel: CompilableKernel, sources: SourceSnapshot, wanted: Sequence[ImageRequest]
    ) -> dict[str, tuple[bytes, bytes]]:
        """Compile images that another machine has planned; return record and code by key.

        Raises:
            BuildError, IncompleteError, ToolchainError: see `outcomes`.
        """
        place = self.prepare(kernel)
        asked = [(it.unit, it.request, place.key(it.unit, it.request, sources)) for it in wanted]
        units = [self._claim(place, sources, parts, "") for parts in asked]
        self._make(units, lambda *_: None)
        entries = {pending.key: self._cache.entry(pending.key) for pending in units}
        return {key: entry for key, entry in entries.items() if entry is not None}

    def _filled(
        self,
        kernel: CompilableKernel,
        sources: SourceSnapshot,
        units: Sequence[_PendingUnit],
        tell: UnitProgressCallback,
    ) -> list[_PendingUnit]:
        """Return the units after the filler has put into the cache what it could compile."""
        ours = {pending.key: pending for pending in units if pending.is_ours}
        wanted = {key: ImageRequest(p.unit, p.asked.request) for key, p in ours.items()}
        if self._filler is not None and wanted:
            self._filler.fill_images(kernel, sources, wanted, tell)
        for key, pending in ours.items():
            result = self._cache.find(key)
            if result is not None:
                pending.result.set_result(result)
                self._log.record(pending.unit, pending.asked.variant)
        return [replace(p, is_ours=p.is_ours and not p.result.done()) for p in units]

    def _make(self, units: Sequence[_PendingUnit], tell: UnitProgressCallback) -> None:
        ours = [pending for pending in units if pending.is_ours]
        # Units from the cache, and those that another call compiles, count as done.
        done, counting = itertools.count(len(units) - len(ours) + 1), threading.Lock()

        def perform(pending: _PendingUnit) -> None:
            with fulfilling(pending.result):
                began = time.monotonic()
                result = self._made_of(pending)
                self._seconds[pending.key] = time.monotonic() - began
                pending.share.settle(result).add_done_callback(
                    lambda whole: self._finish(pending, whole)
                    # Another unit may be compiling the same kernel, so the result may arrive later,
                    # from its thread.
                )
            # Threads end in any order, but the numbers that users see must only rise.
            with counting:
                tell(next(done), len(units), unit_label(pending.unit))

        try:
            LocalExecutor(self._run, perform, ours).execute()
            # Kernels that other units compile may be ready later than `execute` returns.
            wait([pending.result for pending in ours if not pending.share.is_ours])
        finally:
            self._abandon(ours)

    def _made_of(self, pending: _PendingUnit) -> CompileResult | Rejection:
        try:
            return self._client.compile(pending.asked, pending.unit, pending.share.makes)
        # Other units with the same kernel wait for this one's answer, and would wait forever.
        except BaseException as error:
            pending.share.fail(error)
            raise

    def _finish(self, pending: _PendingUnit, whole: Future[CompileResult | Rejection]) -> None:
        """Store a unit's image in the cache, and set the result of its future."""
        error = whole.exception()
        with suppress(InvalidStateError):  # the run ended meanwhile
            if error is not None:
                pending.result.set_exception(error)
                return
            result = whole.result()
            if isinstance(result, CompileResult):
                self._cache.keep(pending.key, result)
                if self._filler is not None:
                    self._filler.compare_image(pending.key, result)
            pending.result.set_result(result)

    def _abandon(self, units: Sequence[_PendingUnit]) -> None:
        """Fail the units that the run's end left, so that no other thread waits for them."""
        for pending in units:
            error = IncompleteError("the run ended before everything was compiled")
            pending.share.fail(error)
            if not pending.result.done():
                # A later call in the same process may ask again and must not get this error.
                with self._lock:
                    self._results.pop(pending.key, None)
                pending.result.set_exception(error)


def _pending_unit_parts(
    place: CompileEnvironment, sources: SourceSnapshot, unit: KernelUnit, bound: BoundLaunch
) -> tuple[KernelUnit, Mapping[str, Any], str]:
    """The unit, what a worker is asked for, and the key of its image."""
    device = device_facts(unit.target, place.flavour)
    request = {**place.language.request(unit, bound), "device": device}
    return unit, request, place.key(unit, request, sources)
