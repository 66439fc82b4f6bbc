"""A worker of a cluster: it makes the units that it is given, in a folder and cache of its own.

The functions at the end are all that the machine that builds asks of a worker. They take and give
plain values, and start nothing but kbuild's own programs and the compilers of the plan.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import sys
import threading
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from kbuild.build.compile import CompileTree
from kbuild.build.unit.cache import ENTRY_PARTS
from kbuild.build.unit.command import COMPILER_VARIABLES
from kbuild.plugins.cluster.jobs import (
    FileArchive,
    ImageJob,
    machine_facts,
    parse_job,
    unpack_archive,
)
from kbuild.plugins.cluster.objects import ObjectUnit, object_units
from kbuild.system.budget import Run, available_processors, make_budget, open_run
from kbuild.system.cache import OBJECTS_LIMIT
from kbuild.system.cache_sweep import HEADERS_VARIABLE, sweep
from kbuild.system.errors import KbuildError, ToolchainError
from kbuild.system.processes import LocalRunner, canonical_interpreter
from kbuild.system.untrusted import parse_json

FOLDER_VARIABLE = "KBUILD_WORKER_DIR"
MEMORY_VARIABLE = "KBUILD_WORKER_MEMORY"
"""MiB for the compilers of a worker."""
PYTHON_VARIABLE = "KBUILD_WORKER_PYTHON"
"""The interpreter with Torch that a worker runs variants with."""
METADATA_KEY = "kbuild"
"""Key of jobs and archives on the scheduler, below it by session and digest."""
GPU_PREFIX = "gpu:"
"""Prefix of a GPU's model in the resources that a worker declares."""
_PREPARE_PROGRAM = "kbuild.plugins.cluster.worker_compiler"
_PASSED_VARIABLES = (
    *COMPILER_VARIABLES, "CXX", "VIRTUAL_ENV", "PATH", "HOME",
    "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
    "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "KBUILD_ACCEPT_LICENSE", "KBUILD_CACHE_SIZE", "KBUILD_SANDBOX",
    PYTHON_VARIABLE, "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables of compilers, toolchains and GPUs in the worker's environment, and those of pip."""
_PREPARE_SECONDS = 3600.0
"""Seconds for provisioning a toolchain."""
_WAIT_SECONDS = 30.0
"""Seconds of a run beside waiting and running."""
_MARK = ".unpacked"
"""Mark in the folder of an archive that is complete."""
_MAX_ARCHIVES = 32
"""Projects and variants that a worker keeps, each state by itself."""
_PROCESSORS_OF_RUN = 4
"""Processors of a worker without a GPU, for one test run or measurement at a time."""
_TAIL = 40
"""Lines of a failed unit that travel back."""

Fetch = Callable[[str], bytes]
"""Maps a digest to the job or archive of that name."""


def passed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a worker that kbuild and compilers see."""
    return {
        name: value
        for name, value in environ.items()
        if name in _PASSED_VARIABLES or name.startswith("PIP_")
    }


@dataclass(frozen=True)
class PreparedJob:
    """A job whose units this worker can make."""

    data: bytes
    units: Mapping[str, ObjectUnit] | None
    """Units by key, in a configured tree; None for images."""
    project: Path | None = None
    """Folder of the sources, which may be removed."""

    @property
    def is_here(self) -> bool:
        """False when its sources were removed."""
        return self.project is None or (self.project / _MARK).is_file()


class WorkerState:
    """One worker's folder, cache and budget; it lives as long as the process."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self.cache = folder / "cache"
        # What a worker compiles is compared with what this machine would make: without shortcuts.
        self._environ = {**passed_environment(os.environ), HEADERS_VARIABLE: "off"}
        self._closing = ExitStack()
        self._jobs: dict[str, Future[PreparedJob]] = {}
        self._lock = threading.Lock()
        self.cache.mkdir(parents=True, exist_ok=True)
        budget = make_budget(jobs, int(os.environ.get(MEMORY_VARIABLE) or 0) or None)
        self._run: Run = self._closing.enter_context(open_run(budget, self.cache, self._environ))

    def close(self) -> None:
        """Remove the temporary files."""
        self._closing.close()

    @property
    def memory(self) -> int:
        """MiB for compilers."""
        return self._run.budget.memory

    def prepared(self, job: str, fetch: Fetch) -> PreparedJob:
        """The job, configured once for all its units.

        Raises:
            KbuildError: this machine cannot make it.
        """
        with self._lock:
            known = self._jobs.get(job)
            if known is not None and known.done() and not known.result().is_here:
                del self._jobs[job]
            # One thread configures the job, and the others wait for its future.
            is_ours = job not in self._jobs
            future = self._jobs.setdefault(job, Future())
        if is_ours:
            try:
                future.set_result(self._prepare(job, fetch))
            except BaseException as error:  # noqa: BLE001 - raised in every thread that waits
                with self._lock:
                    self._jobs.pop(job)  # another attempt may go better
                future.set_exception(error)
        return future.result()

    def make(self, job: str, key: str, seconds: float, fetch: Fetch) -> dict[str, Any]:
        """Make one unit: an object, or images whose keys are separated by blanks.

        Returns:
            The entries of the cache under `outputs`, compressed, and `seconds`; or `failure` for a
            unit that does not compile, or `refusal` for a job that this machine cannot do.

        Raises:
            KbuildError: see `prepared`.
        """
        prepared, began = self.prepared(job, fetch), time.monotonic()
        if prepared.units is None:
            answer = self._make_images(prepared.data, key.split(), seconds)
        else:
            unit = prepared.units.get(key)
            if unit is None:
                return {"refusal": "its compiler, or its source, is another one than here"}
            answer = self._make_object(unit, seconds)
        return {**answer, "seconds": time.monotonic() - began}

    def run(self, job: str, seconds: float, fetch: Fetch) -> dict[str, Any]:
        """Run a variant as a job says, in an interpreter and on a GPU that it fits.

        The job is a JSON object with digests of archives in `archives`, by what they hold, and
        what `kbuild.plugins.cluster.worker_compiler` reads.

        Returns:
            `outputs`, compressed, and `seconds`; or `refusal` when it fits nothing here.

        Raises:
            KbuildError: it cannot be run here.
        """
        request, began = parse_json(fetch(job), "the job", "a job of a cluster"), time.monotonic()
        folders = {
            name: str(self.unpacked(digest, fetch)) for name, digest in request["archives"].items()
        }
        own = {"runs_on": self.runtime, "folders": folders, "cache": str(self.cache)}
        limit = 2 * seconds + _WAIT_SECONDS  # a GPU may be held by another run
        answer = self._ask({**request, **own, "seconds": seconds}, limit)
        return {**answer, "seconds": time.monotonic() - began}

    def _make_object(self, unit: ObjectUnit, seconds: float) -> dict[str, Any]:
        # An earlier build may have made it, or an attempt whose answer was lost.
        entry = _entry_of(unit)
        if entry is None:
            failure = self._compile(unit, seconds)
            if failure:
                return {"failure": failure}
            entry = _entry_of(unit)
        return {"outputs": entry} if entry else {"failure": "its object could not be kept"}

    def _make_images(self, job: bytes, keys: Sequence[str], seconds: float) -> dict[str, Any]:
        # Dask calls this in as many threads as there are processors.
        memory = self._run.budget.memory // self.jobs
        request = {"job": job.decode(), "keys": keys, "memory": memory, "cache": str(self.cache)}
        return self._ask(request, seconds)

    def _compile(self, unit: ObjectUnit, seconds: float) -> str:
        """Compile one unit; the reason that the launcher failed, empty when it did not."""
        server = self._run.server
        if server is not None and not server.acquire(lambda: self._run.is_ending):
            return "the worker is ending"
        try:
            with _limited_runner(seconds) as runner:
                done = runner.run(unit.argv, cwd=unit.tree.tree, env=unit.tree.environ)
        finally:
            if server is not None:
                server.release()
        lines = done.output.splitlines()[-_TAIL:]
        return "" if done.ok else "\n".join(lines) or f"exit status {done.returncode}"

    def _prepare(self, job: str, fetch: Fetch) -> PreparedJob:
        data = fetch(job)
        parsed = parse_job(data)
        if isinstance(parsed, ImageJob):
            return PreparedJob(data, None)
        project = self.unpacked(parsed.project, fetch)
        # A build sweeps the cache with its report, and a worker writes none.
        sweep(self.cache, {OBJECTS_LIMIT: self._run.limit})
        generated = str(self.unpacked(parsed.generated, fetch)) if parsed.generated else ""
        request = {"job": data.decode(), "project": str(project), "cache": str(self.cache)}
        answer = self._ask({**request, "generated": generated})
        reason = answer.get("refusal") or answer.get("failure")
        if reason:
            raise ToolchainError(str(reason))
        compilers = [(str(name), str(version)) for name, version in answer["compilers"]]
        own = self._run.environment(str(answer["variant"]), project, compilers)
        environ = {**answer["environ"], **own}
        commands = list(answer["commands"].values())
        tree = CompileTree(parsed.plan, project, Path(answer["tree"]), commands, environ)
        return PreparedJob(data, {unit.key: unit for unit in object_units(tree)}, project)

    def unpacked(self, digest: str, fetch: Fetch) -> Path:
        """The folder with the files of an archive, which is fetched once.

        Raises:
            KbuildError: the archive is damaged, or not there any more.
            OSError: a file cannot be written.
        """
        folder = self.folder / "projects" / digest[:24]
        mark = folder / _MARK
        with self._lock:
            if not mark.is_file():
                folder.mkdir(parents=True, exist_ok=True)
                unpack_archive(FileArchive(digest, fetch(digest)), folder)
                folder.mkdir(parents=True, exist_ok=True)  # the archive may be empty
            # Also if it was there: the marks that were touched first are removed below.
            mark.touch()
            marks = folder.parent.glob(f"*/{_MARK}")
            for old in sorted(marks, key=lambda mark: mark.stat().st_mtime)[:-_MAX_ARCHIVES]:
                shutil.rmtree(old.parent, ignore_errors=True)
        return folder

    @cached_property
    def runtime(self) -> Mapping[str, Any]:
        """The interpreter that variants are run with, see `WorkerRuntime`.

        Raises:
            ToolchainError: there is none.
        """
        request = {"runtime": self._environ.get(PYTHON_VARIABLE, ""), "cache": str(self.cache)}
        answer = self._ask(request)
        if "refusal" in answer:
            raise ToolchainError(str(answer["refusal"]))
        return answer

    def _ask(self, request: Mapping[str, Any], seconds: float = _PREPARE_SECONDS) -> dict[str, Any]:
        """Run kbuild in a process of its own, without this one's state, and read its answer.

        Files in it, under `outputs`, are compressed.
        """
        python = str(canonical_interpreter(Path(sys.executable)))
        environ = {**self._environ, "KBUILD_CACHE_DIR": str(self.cache)}
        command = (python, "-m", _PREPARE_PROGRAM)
        with _limited_runner(seconds) as runner:
            done = runner.run(command, env=environ, stdin=json.dumps(request))
        lines = done.output.strip().splitlines()
        if not done.ok or not lines:
            raise ToolchainError("kbuild failed on the worker:\n" + "\n".join(lines[-_TAIL:]))
        answer: dict[str, Any] = parse_json(lines[-1], "the answer", "an answer")
        if outputs := answer.get("outputs"):
            packed = {name: zlib.compress(b64decode(part), 1) for name, part in outputs.items()}
            answer["outputs"] = packed
        return answer


@contextmanager
def _limited_runner(seconds: float) -> Iterator[LocalRunner]:
    """A runner whose processes end after some time."""
    runner = LocalRunner()
    timer = threading.Timer(seconds, runner.stop)
    timer.daemon = True
    timer.start()
    try:
        yield runner
    finally:
        timer.cancel()


def _entry_of(unit: ObjectUnit) -> dict[str, bytes] | None:
    """The cache's entry of a unit, ready to travel; its inputs are looked at anew."""
    fresh = next(object_units(unit.tree_of_one), None)
    entry_parts = fresh.cache.find() if fresh is not None else None
    if fresh is None or entry_parts is None:
        return None
    parts = dict(zip(ENTRY_PARTS, entry_parts, strict=True)) | {"cost": fresh.cost}
    return {name: zlib.compress(part, 1) for name, part in parts.items()}


@cache
def _worker_state(folder: str, jobs: int) -> WorkerState:
    state = WorkerState(Path(folder), jobs)
    atexit.register(state.close)
    return state


def current_state() -> WorkerState:
    """The state of the worker process that runs this."""
    from distributed import get_worker

    worker = get_worker()
    folder = os.environ.get(FOLDER_VARIABLE) or f"{worker.local_directory}/kbuild"
    return _worker_state(folder, worker.state.nthreads)


def fetch_from_scheduler(session: str, digest: str) -> bytes:
    """Read a file that the machine that builds has put down for its workers.

    Raises:
        KbuildError: it is not there any more.
    """
    from distributed import get_worker
    from distributed.utils import sync

    worker, keys = get_worker(), [METADATA_KEY, session, digest]
    data = sync(worker.loop, worker.scheduler.get_metadata, keys=keys, default=None)
    if not isinstance(data, bytes):
        raise KbuildError("the build that asked for it has ended")
    return data


def describe_worker() -> dict[str, Any]:
    """Describe this worker and its resources."""
    state = current_state()
    return {
        "facts": machine_facts(state.cache).to_json(),
        "host": socket.gethostname(),
        "processors": available_processors(),
        "memory": state.memory,
    }


def describe_runtime() -> dict[str, Any]:
    """Describe this worker and its interpreter; imports Torch in a process of its own.

    Returns:
        What `describe_worker` says, with `runtime` (see `WorkerRuntime`) and `slots`, how many
        runs it takes at a time; or with `refusal`.
    """
    state, description = current_state(), describe_worker()
    try:
        runtime = state.runtime
    except KbuildError as error:
        return {**description, "refusal": str(error)}
    slots = len(runtime["devices"]) or max(1, state.jobs // _PROCESSORS_OF_RUN)
    return {**description, "runtime": runtime, "slots": slots}


def make_unit(session: str, job: str, key: str, seconds: float) -> dict[str, Any]:
    """Make one unit of a job, in `seconds` at most; see `WorkerState.make`."""
    try:
        state = current_state()
        return state.make(job, key, seconds, lambda digest: fetch_from_scheduler(session, digest))
    except (KbuildError, OSError) as error:
        return {"refusal": str(error)}


def run_unit(session: str, job: str, key: str, seconds: float) -> dict[str, Any]:
    """Run a variant, in `seconds` at most; see `WorkerState.run`."""
    del key  # a job is one run
    try:
        state = current_state()
        return state.run(job, seconds, lambda digest: fetch_from_scheduler(session, digest))
    except (KbuildError, OSError) as error:
        return {"refusal": str(error)}
