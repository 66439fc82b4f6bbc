"""Compiles units ahead of time: looks images up, compiles the others with workers, stores them.

One compiler serves all variants of a run. A unit that several want at once is compiled once; the
others wait for it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kbuild.dsl.compile_environment import (
    CompilableKernel,
    CompileEnvironment,
    SourceSnapshot,
    compile_environment,
    json_digest,
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
    compiled_images,
    rejection_error,
    unit_label,
)
from kbuild.dsl.worker_client import ANSWER_TIMEOUT, CompileLog, CompileRequest, WorkerClient
from kbuild.dsl.workers import WorkerPool
from kbuild.ops.bound_launch import BoundLaunch, KernelParameter
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES, KernelFunction, Language
from kbuild.ops.steps import Candidate
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.budget import Run
from kbuild.system.errors import BuildError, IncompleteError
from kbuild.system.unit_executor import LocalExecutor, UnitResult, WorkUnit

_COMPARED_FIELDS = {
    "parameters": "parameters",
    "key": "arguments in its key",
    "computed": "computed constants",
    "facts": "tensors",
}
"""Attributes of a function that must be the same for every arch -> their name in messages."""


def functions_from_answers(
    kernel: str, answers: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, KernelFunction]:
    """Merge what the worker answered for each arch into one function per name, in source order.

    A source may define other candidates for another arch; each is then only for its archs.

    Raises:
        BuildError: a function takes other arguments on another arch.
    """
    functions_by_name: dict[str, dict[str, KernelFunction]] = {}
    for arch, answer in answers.items():
        for function in answer["functions"]:
            functions_by_name.setdefault(function["name"], {})[arch] = _function_from_json(function)
    return {name: _merge_functions(kernel, own) for name, own in functions_by_name.items()}


def arch_of_target(target: ImageTarget) -> str:
    """An arch that has the devices of a target, as `build.toml` writes it."""
    capability = target.capability
    return target.arch if capability is None else f"{capability.major}.{capability.minor}"


def _merge_functions(kernel: str, functions: Mapping[str, KernelFunction]) -> KernelFunction:
    (first, function), *others = functions.items()
    for arch, other in others:
        for what, title in _COMPARED_FIELDS.items():
            if getattr(other, what) != getattr(function, what):
                message = f"kernel.{kernel}: `{function.name}` has different {title} for {arch}"
                raise BuildError(
                    f"{message} than for {first}: its source depends on the arch",
                    hint="write two functions, or build for these archs in two sections",
                )
    notes = dict.fromkeys(note for other in functions.values() for note in other.notes)
    return replace(function, candidates=tuple(_candidates(functions)), notes=tuple(notes))


def _candidates(functions: Mapping[str, KernelFunction]) -> Iterator[Candidate]:
    """Yield the candidates; each names its archs where the lists differ between archs."""
    lists = [function.candidates for function in functions.values()]
    if all(candidates == lists[0] for candidates in lists):
        yield from lists[0]
        return
    for candidates in dict.fromkeys(lists):
        archs = tuple(arch for arch, f in functions.items() if f.candidates == candidates)
        yield from (replace(candidate, archs=archs) for candidate in candidates)


def _function_from_json(data: Mapping[str, Any]) -> KernelFunction:
    key, computed, notes = (tuple(data.get(word, ())) for word in ("key", "computed", "notes"))
    parameters = []
    for entry in data["parameters"]:
        name, constant = entry["name"], entry["constant"]
        has_default = constant and (entry["default"] or name in computed)
        has_value = entry.get("optional", False) or has_default
        parameters.append(KernelParameter(name, constant, has_value))
    candidates = tuple(
        Candidate(tuple(entry["constants"].items()), tuple(entry["options"].items()))
        for entry in data.get("candidates", ())
    )
    facts = data.get("facts", {})
    return KernelFunction(data["name"], tuple(parameters), candidates, key, computed, notes, facts)


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


ResultT = TypeVar("ResultT")


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
        self._lock = threading.Lock()
        self._places: dict[tuple[str, tuple[str, ...], str], CompileEnvironment] = {}
        self._results: dict[str, Future[CompileResult | Rejection]] = {}
        self._described: dict[str, Future[Mapping[str, Any]]] = {}
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
        devices = {arch_of_target(t): device_facts(t, kernel.flavour) for t in targets}
        answers = {
            arch: self._answer(kernel, place, sources, device)
            for arch, device in (devices or {"": {}}).items()
        }
        return functions_from_answers(kernel.name, answers)

    def _answer(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        device: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the description of the sources for a device; it is computed once."""
        # Most sources ask nothing about the device; one description then serves all of them.
        general = place.description_key(sources)
        with self._lock:
            known = self._described.get(general)
            future, is_ours = _claim_future(self._described, json_digest([general, device]))
        if known is not None:
            return known.result()
        if is_ours:
            with _future_context(future):
                future.set_result(self._description(kernel, place, sources, device))
        answer = future.result()
        if not answer.get("asked"):  # it holds for every device
            with self._lock:
                self._described[general] = future
        return answer

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
            future, is_ours = _claim_future(self._results, key)
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
        done, counting = itertools.count(len(units) - len(ours) + 1), threading.Lock()

        pending_by_key = {pending.key: pending for pending in ours}

        def perform(unit: WorkUnit) -> UnitResult:
            pending = pending_by_key[unit.key]
            with _future_context(pending.result):
                began = time.monotonic()
                result = self._made_of(pending)
                self._seconds[pending.key] = time.monotonic() - began
                pending.share.settle(result).add_done_callback(
                    lambda whole: self._finish(pending, whole)
                    # Another unit may be compiling the same kernel, so the result may arrive later,
                    # from its thread.
                )
            return UnitResult(unit, seconds=self._seconds[pending.key])

        def deliver(result: UnitResult) -> None:
            with counting:
                tell(next(done), len(units), result.unit.label)

        own = [WorkUnit(pending.key, unit_label(pending.unit)) for pending in ours]
        try:
            LocalExecutor(self._run, perform).execute(own, deliver)
            # Kernels that other units compile may be ready later than `execute` returns.
            wait([pending.result for pending in ours if not pending.share.is_ours])
        finally:
            self._abandon(ours)

    def _made_of(self, pending: _PendingUnit) -> CompileResult | Rejection:
        try:
            return self._client.compile(pending.asked, pending.unit, pending.share.makes)
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

    def _description(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        device: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        general = place.description_key(sources)
        own = json_digest([general, device])
        # An earlier run may have stored it for any device or for this one.
        description = self._cache.described(general) or self._cache.described(own)
        if description is not None:
            return description
        folder = self._folder / "sources"
        answer = self._client.describe(CompileRequest(place, sources, folder, {"device": device}))
        if isinstance(answer, Rejection):
            message = f"kernel.{kernel.name}: {answer}"
            raise BuildError(message, excerpt=answer.excerpt, hint=answer.hint)
        self._cache.keep_described(own if answer.get("asked") else general, answer)
        return answer


def _pending_unit_parts(
    place: CompileEnvironment, sources: SourceSnapshot, unit: KernelUnit, bound: BoundLaunch
) -> tuple[KernelUnit, Mapping[str, Any], str]:
    """The unit, what a worker is asked for, and the key of its image."""
    device = device_facts(unit.target, place.flavour)
    request = {**place.language.request(unit, bound), "device": device}
    return unit, request, place.key(unit, request, sources)


def _claim_future(known: dict[str, Future[ResultT]], key: str) -> tuple[Future[ResultT], bool]:
    """The future with that key, and True for the caller that creates it and so has to fulfil it."""
    is_new = key not in known
    return known.setdefault(key, Future()), is_new


@contextmanager
def _future_context(future: Future[ResultT]) -> Iterator[None]:
    """Set an exception in the block on the future too, so that waiting threads get it."""
    try:
        yield
    except BaseException as error:
        future.set_exception(error)
        raise
