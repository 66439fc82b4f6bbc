"""Sends units to workers: reserves memory, repeats requests after a crash, logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kbuild.dsl.compile_environment import CompileEnvironment, SourceSnapshot
from kbuild.dsl.devices import max_shared_memory
from kbuild.dsl.image_cache import PRUNED, CompileResult, Rejection, unit_label
from kbuild.dsl.workers import ShouldCompile, WorkerDiedError, WorkerPool, WorkerProcess
from kbuild.ops.image import KernelImage
from kbuild.ops.unit import KernelUnit
from kbuild.system.budget import Run
from kbuild.system.errors import IncompleteError
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
"""Lines of a dead worker's output that are shown."""
_UNUSED_PARAMETERS = ("profile_scratch",)


@dataclass(frozen=True)
class CompileRequest:
    """A request to a worker, and the environment and sources that it is for."""

    place: CompileEnvironment
    sources: SourceSnapshot
    folder: Path
    """Folder below which the sources are written for workers."""
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
        jobs = budget.jobs if self._run.server else 0
        ledger = MemoryReservations(folder, budget.memory, jobs, worker.pid)
        ledger.take(self._heaviest, lambda: self._run.is_ending or self._pool.is_closed)
        return ledger


def result_from_answer(
    answer: Mapping[str, Any], code: bytes | None, place: CompileEnvironment, unit: KernelUnit
) -> CompileResult | Rejection:
    """Turn a worker's answer into a result; `code` is None when another unit compiles it."""
    facts = {name: value for name, value in answer.items() if name not in _UNUSED_PARAMETERS}
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
    most = max_shared_memory(unit.target)
    if image.shared > most:
        why = f"it needs {image.shared} bytes of shared memory, but {most} are available"
        return CompileResult(None, b"", why)
    return CompileResult(image, code or b"")
