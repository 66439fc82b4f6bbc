"""Sends units and sources to workers: reserves memory, repeats requests after a crash, logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kbuild.dsl.compile_environment import (
    CompilableKernel,
    CompileEnvironment,
    SourceSnapshot,
    json_digest,
)
from kbuild.dsl.devices import device_facts, max_shared_memory
from kbuild.dsl.image_cache import (
    PRUNED,
    CompileResult,
    ImageCache,
    Rejection,
    claim_future,
    fulfilling,
    unit_label,
)
from kbuild.dsl.workers import ShouldCompile, WorkerDiedError, WorkerPool, WorkerProcess
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.image import KernelImage
from kbuild.ops.language import KernelFunction
from kbuild.ops.steps import Candidate
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.budget import Run
from kbuild.system.errors import BuildError, IncompleteError
from kbuild.system.memory_governor import MemoryReservations
from kbuild.system.unit_settings import append_record


@dataclass
class CompileRecord:
    """One compilation that is under way, for the log."""

    is_made: bool = True
    """False when the worker was told that the kernel is compiled already."""
    is_refused: bool = True
    """True until the compilation succeeds."""


@dataclass(frozen=True)
class CompileLog:
    """Writes the compilations of one run to its log."""

    log: str
    """Path of the log; see `kbuild.build.unit_log`."""

    @contextmanager
    def compiling(
        self, unit: KernelUnit, variant: str, worker: WorkerProcess
    ) -> Iterator[CompileRecord]:
        """Log the compilation that a worker performs in the block."""
        record, start, before = CompileRecord(), time.time(), worker.cpu
        try:
            yield record
        finally:
            # A worker that died in the block has no CPU times any more, and they read as 0.
            user, system = (max(0.0, b - a) for a, b in zip(before, worker.cpu, strict=True))
            peak = worker.peak
            self._write(unit, variant, start, record, user=user, system=system, peak=peak)

    def record(self, unit: KernelUnit, variant: str) -> None:
        """Log a unit whose image was cached."""
        logged = CompileRecord(is_made=False, is_refused=False)
        self._write(unit, variant, time.time(), logged)

    def _write(
        self, unit: KernelUnit, variant: str, start: float, compiled: CompileRecord, **facts: float
    ) -> None:
        record = {
            "unit": unit_label(unit) + ("" if unit.aligned else " (any alignment)"),
            "variant": variant,
            "language": unit.language,
            "start": start,
            "end": time.time(),
            "status": int(compiled.is_refused),
            "cache": "miss" if compiled.is_made or compiled.is_refused else "hit",
            "image": True,
            **facts,
        }
        with suppress(OSError):  # a build must not fail because its log cannot be written
            append_record(self.log, record)


AnswerT = TypeVar("AnswerT")
_ATTEMPTS = 2
ANSWER_TIMEOUT = 600.0
"""Seconds that one unit may take."""
_DEFAULT_WORKER_MIB = 600
"""MiB to reserve for a worker before one was measured; the largest measured peak replaces it."""
_OUTPUT_TAIL_LINES = 12
# Triton's answer has it, but launchers pass no such memory: an image that needs it is rejected.
_UNUSED_PARAMETERS = ("profile_scratch",)


@dataclass(frozen=True)
class CompileRequest:
    """A request to a worker, and the environment and sources that it is for."""

    place: CompileEnvironment
    sources: SourceSnapshot
    folder: Path
    request: Mapping[str, Any]
    variant: str = ""
    """Variant that is logged as the one that asked for the unit."""


class WorkerClient:
    """Sends requests to workers of a pool."""

    def __init__(self, run: Run, pool: WorkerPool, patience: float = ANSWER_TIMEOUT) -> None:
        self._run, self._pool, self._patience = run, pool, patience
        self._log = CompileLog(str(run.log))
        self._heaviest = _DEFAULT_WORKER_MIB
        self._lock = threading.Lock()

    def describe(self, asked: CompileRequest) -> Mapping[str, Any] | Rejection:
        """Return the worker's description of the sources, or its rejection.

        Raises:
            IncompleteError: the run ended.
        """

        def ask(worker: WorkerProcess) -> Mapping[str, Any] | Rejection:
            answer = self._ask(worker, asked, "describe", lambda _: True)
            if "refusal" in answer:
                return Rejection.read(answer["refusal"])
            described: Mapping[str, Any] = answer["answer"]
            return described

        return self._attempted(asked, ask)

    def compile(
        self, asked: CompileRequest, unit: KernelUnit, makes: ShouldCompile = lambda _: True
    ) -> CompileResult | Rejection:
        """Return the unit's image or a rejection; without code where `makes` returns False.

        Raises:
            IncompleteError: the run ended.
        """

        def ask(worker: WorkerProcess) -> CompileResult | Rejection:
            with self._log.compiling(unit, asked.variant, worker) as record:

                def answer_kernel(kernel: str) -> bool:
                    record.is_made = makes(kernel)
                    return record.is_made

                answer = self._ask(worker, asked, "compile", answer_kernel)
                if "refusal" in answer:
                    return Rejection.read(answer["refusal"])
                record.is_refused = False
                # Read before the worker is given back, because its next unit overwrites the file.
                code = (worker.scratch / "code").read_bytes() if record.is_made else None
                return result_from_answer(answer["answer"], code, asked.place, unit)

        return self._attempted(asked, ask)

    def _attempted(
        self,
        asked: CompileRequest,
        ask: Callable[[WorkerProcess], AnswerT | Rejection],
    ) -> AnswerT | Rejection:
        # A crash may come from a lack of memory, so the request is repeated with a new worker.
        deaths: list[WorkerDiedError] = []
        while len(deaths) < _ATTEMPTS:
            kind = asked.place.kind(asked.request)
            try:
                with self._pool.worker(kind, fresh=bool(deaths)) as worker:
                    return ask(worker)
            except WorkerDiedError as death:
                if self._run.is_ending or self._pool.is_closed:
                    # `close` kills busy workers, so here a death is no crash of the compiler.
                    raise IncompleteError("the run ended before everything was compiled") from None
                deaths.append(death)
        last = deaths[-1]
        message = f"the compiler {last.how}, {_ATTEMPTS} times"
        return Rejection(message, excerpt=tuple(last.output.splitlines()[-_OUTPUT_TAIL_LINES:]))

    def _ask(
        self, worker: WorkerProcess, asked: CompileRequest, what: str, makes: ShouldCompile
    ) -> Mapping[str, Any]:
        request = {
            "ask": what,
            "root": str(asked.sources.write(asked.folder)),
            "sources": [path for path, _ in asked.sources.texts],
            "output": str(worker.scratch / "code"),
            **asked.request,
        }
        ledger = self._room(worker)
        try:
            return worker.ask(request, self._patience, makes)
        finally:
            ledger.release()
            peak = worker.peak
            with self._lock:
                self._heaviest = max(self._heaviest, peak)

    def _room(self, worker: WorkerProcess) -> MemoryReservations:
        """Wait until there is memory for the worker and all other compilers of the run."""
        budget, folder = self._run.budget, str(self._run.folder / "ledger")
        # Without a job server nobody limits the number of compilers.
        jobs = budget.jobs if self._run.server else 0
        ledger = MemoryReservations(folder, budget.memory, jobs, worker.pid)
        ledger.take(self._heaviest, lambda: self._run.is_ending or self._pool.is_closed)
        return ledger


def result_from_answer(
    answer: Mapping[str, Any], code: bytes | None, place: CompileEnvironment, unit: KernelUnit
) -> CompileResult | Rejection:
    """Turn a worker's answer into a result; `code` is None when another unit compiles it."""
    facts = {name: value for name, value in answer.items() if name not in _UNUSED_PARAMETERS}
    # Before the size is checked: the file of a pruned candidate is empty as well.
    if answer.get("pruned"):
        return CompileResult(None, b"", PRUNED)
    if code == b"":
        return Rejection("the compiler produced an empty image")
    if answer.get("profile_scratch"):
        return Rejection("the function writes a profile, which launchers do not support")
    facts |= {"language": unit.language, "arch": unit.target.arch}
    try:
        image = KernelImage.from_json({**facts, "compiler": place.compiler(unit.target)})
    except ValueError as error:
        return Rejection(str(error))
    # Not a rejection: other candidates may fit, and `compiled_images` requires only one.
    most = max_shared_memory(unit.target)
    if image.shared > most:
        why = f"it needs {image.shared} bytes of shared memory, but {most} are available"
        return CompileResult(None, b"", why)
    return CompileResult(image, code or b"")


class KernelDescriptions:
    """Asks workers to describe sources. Safe to use from several threads."""

    def __init__(self, client: WorkerClient, cache: ImageCache, folder: Path) -> None:
        """Sources are written below `folder` for workers."""
        self._client, self._cache, self._folder = client, cache, folder
        self._lock = threading.Lock()
        self._described: dict[str, Future[Mapping[str, Any]]] = {}

    def describe(
        self,
        kernel: CompilableKernel,
        place: CompileEnvironment,
        sources: SourceSnapshot,
        targets: Sequence[ImageTarget] = (),
    ) -> Mapping[str, KernelFunction]:
        """See `AotCompiler.describe`."""
        devices = {arch_of_target(t): device_facts(t, place.flavour) for t in targets}
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
            future, is_ours = claim_future(self._described, json_digest([general, device]))
        if known is not None:
            return known.result()
        if is_ours:
            with fulfilling(future):
                future.set_result(self._description(kernel, place, sources, device))
        answer = future.result()
        if not answer.get("asked"):  # it holds for every device
            with self._lock:
                self._described[general] = future
        return answer

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
        answer = self._client.describe(
            CompileRequest(place, sources, self._folder, {"device": device})
        )
        if isinstance(answer, Rejection):
            message = f"kernel.{kernel.name}: {answer}"
            raise BuildError(message, excerpt=answer.excerpt, hint=answer.hint)
        self._cache.keep_described(own if answer.get("asked") else general, answer)
        return answer


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
