"""Starts a cluster: a scheduler here, workers here or on other machines, and one worker."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.plugins.cluster.connect import require_distributed, security_of, write_credentials
from kbuild.plugins.cluster.worker import (
    FOLDER_VARIABLE,
    GPU_PREFIX,
    MEMORY_VARIABLE,
    PYTHON_VARIABLE,
    passed_environment,
)
from kbuild.system.errors import StorageError, ToolchainError, UsageError
from kbuild.system.files import replace_atomically
from kbuild.system.processes import LocalRunner, canonical_interpreter
from kbuild.system.quantities import parse_memory
from kbuild.system.workspace import lock_file

if TYPE_CHECKING:
    from distributed import Security

STDIN = "-"
"""Stands for credentials that come through standard input."""
_NO_PAGES = "127.0.0.1:0"
"""Address of Dask's pages, of which none are left."""
_SLURM_PROCESSORS = "SLURM_CPUS_PER_TASK"
"""The processors of a job of Slurm, which it may not be held to."""
_DEATH_SECONDS = 60
"""Seconds for which a worker looks for a scheduler that has gone."""
_SILENT_SECONDS = "60s"
"""Time of silence after which the scheduler forgets a worker."""


@dataclass(frozen=True)
class WorkerRequest:
    """The options of a worker on its command line."""

    address: str
    folder: Path
    """A folder of its own, for its cache, toolchains and projects."""
    processors: tuple[int, ...] = ()
    """Numbers of the processors that the worker may use; empty for all."""
    memory: int = 0
    """MiB for its compilers; 0 for what is free."""
    name: str = ""
    devices: Mapping[str, int] | None = None
    """GPUs by model."""
    python: str = ""
    """The interpreter that variants are run with; empty for the one that builds use."""


def parse_processors(text: str) -> tuple[int, ...]:
    """Numbers of processors: `0,2-5`.

    Raises:
        UsageError: it is no list of numbers.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"--processors: `{text}` is no list of processors", hint="e.g. 0-3,6")
        numbers |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers))


@contextmanager
def worker_folder(parent: Path) -> Iterator[Path]:
    """The first folder below `parent` that no other worker of this machine has.

    Raises:
        StorageError: it cannot be made.
    """
    for number in range(1000):
        folder = parent / f"{socket.gethostname()}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        # It ends with the process, so a worker that was killed leaves its folder to the next one.
        handle = lock_file(folder / "lock")
        if handle is not None:
            try:
                yield folder
            finally:
                os.close(handle)
            return
    raise StorageError(f"`{parent}` has 1000 workers")


def run_worker(request: WorkerRequest, security: Security | None) -> None:
    """Be a worker until the scheduler ends or is gone for a minute.

    Raises:
        ToolchainError: the scheduler does not answer.
        UsageError: this machine has no such processor.
    """
    require_distributed()
    from distributed import Worker

    from kbuild.system.budget import memory_budget

    processors, memory = _take_processors(request), request.memory or memory_budget()
    # Dask passes its functions nothing of the worker: `current_state` reads these variables.
    os.environ[FOLDER_VARIABLE] = str(request.folder)
    os.environ[MEMORY_VARIABLE] = str(memory)
    if request.python:
        os.environ[PYTHON_VARIABLE] = request.python
    resources = {"processors": float(processors), "memory": float(memory)}
    resources |= {f"{GPU_PREFIX}{model}": float(n) for model, n in (request.devices or {}).items()}

    async def serve() -> None:
        async with Worker(
            request.address,
            nthreads=processors,
            name=request.name or request.folder.name,
            local_directory=str(request.folder / "dask"),
            resources=resources,
            security=security,
            # kbuild reserves memory by itself: Dask would pause or restart the worker.
            memory_limit=0,
            dashboard=False,
            dashboard_address=_NO_PAGES,
            death_timeout=_DEATH_SECONDS,
        ) as worker:
            await worker.finished()

    try:
        asyncio.run(serve())
    except (OSError, TimeoutError) as error:
        message = f"the scheduler at {request.address} does not answer: {error}"
        raise ToolchainError(message) from None


def _take_processors(request: WorkerRequest) -> int:
    """Restrict the process to the worker's processors; return their number."""
    from kbuild.system.budget import available_processors

    if request.processors:
        try:
            # Every compiler that the worker starts inherits this.
            os.sched_setaffinity(0, request.processors)
        except OSError:
            known = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
            raise UsageError(f"--processors: this machine has {known}") from None
    processors = available_processors()
    share = os.environ.get(_SLURM_PROCESSORS, "")
    if share.isdigit() and not request.processors:  # without an affinity, all are available
        processors = max(1, min(processors, int(share)))
    return processors


@dataclass(frozen=True)
class RemoteHost:
    """A machine that is reached with `ssh`."""

    host: str
    python: str
    """The interpreter there that has kbuild."""


def read_hosts(file: Path) -> tuple[RemoteHost, ...]:
    """The machines in a file: one in each line, with the interpreter if it is not `python3`.

    Raises:
        UsageError: the file cannot be read, or a line is not understood.
    """
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--hosts: `{file}` cannot be read: {error}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        host, *python = line.partition("#")[0].split() or [""]
        if len(python) > 1 or host.startswith("-"):
            hint = "write a host, and the path of its Python if need be"
            raise UsageError(f"{file}:{number}: `{line.strip()}` is not understood", hint=hint)
        if host:
            hosts.append(RemoteHost(host, python[0] if python else "python3"))
    if not hosts:
        raise UsageError(f"--hosts: `{file}` names no host")
    return tuple(hosts)


@dataclass(frozen=True)
class ClusterRequest:
    """A cluster, as the command line of `kbuild cluster start` describes it."""

    host: str
    """Address to listen on."""
    port: int
    folder: Path
    """Folder that has those of local workers."""
    credentials: Path
    workers: int
    """Number of workers on this machine."""
    hosts: tuple[RemoteHost, ...] = ()
    scheduler_file: Path | None = None
    python: str = ""
    """See `WorkerRequest.python`; the same on all machines."""


def split_processors(workers: int, available: Sequence[int]) -> list[list[int]]:
    """The processors of each of some workers; threads of one core belong to one worker.

    Raises:
        UsageError: there are fewer processors than workers.
    """
    if workers > len(available):
        processors = f"{len(available)} processor{'s' * (len(available) != 1)}"
        raise UsageError(f"--workers {workers}: there are {processors}")
    # Neighbours in this order share a core, so a cut between them is rare.
    ordered = sorted(available, key=_core_of)
    ends = [len(ordered) * number // workers for number in range(workers + 1)]
    return [ordered[first:last] for first, last in pairwise(ends)]


def _core_of(processor: int) -> tuple[int, int]:
    """The first processor of the same core, and the processor."""
    file = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        first = re.match(r"\d+", file.read_text())
    except OSError:  # only Linux tells
        first = None
    return int(first[0]) if first else processor, processor


def run_cluster(request: ClusterRequest, say: Callable[[str], None]) -> None:
    """Be a scheduler with its workers, until Ctrl-C or SIGTERM.

    Raises:
        ToolchainError: the address cannot be listened on.
        UsageError: the credentials cannot be used.
    """
    require_distributed()
    import dask
    from distributed import Scheduler

    if not request.credentials.exists():
        write_credentials(request.credentials)
        say(f"credentials: wrote {request.credentials}")
    security, runner = security_of(request.credentials), LocalRunner()

    async def serve() -> None:
        async with Scheduler(
            host=request.host,
            port=request.port,
            protocol="tls",
            security=security,
            dashboard=False,
            dashboard_address=_NO_PAGES,
        ) as scheduler:
            if request.scheduler_file is not None:
                facts = json.dumps(scheduler.identity())
                replace_atomically(request.scheduler_file, facts.encode())
            say(f"cluster: {scheduler.address}; use it with `--executor {scheduler.address}`")
            _start_workers(request, scheduler.address, runner, say)
            await scheduler.finished()

    try:
        # Dask's own default is five minutes, for which a machine that is lost keeps its units.
        with dask.config.set({"distributed.scheduler.worker-ttl": _SILENT_SECONDS}):
            asyncio.run(serve())
    except OSError as error:
        message = f"cannot listen on {request.host}:{request.port}: {error}"
        raise ToolchainError(message, hint="choose another --port") from None
    finally:
        runner.stop()


def _start_workers(
    request: ClusterRequest, address: str, runner: LocalRunner, say: Callable[[str], None]
) -> None:
    """Start a process for each worker; it is watched by a thread."""
    from kbuild.system.budget import memory_budget

    available = sorted(os.sched_getaffinity(0))
    shares = split_processors(request.workers, available) if request.workers else []
    python = str(canonical_interpreter(Path(sys.executable)))
    environ = passed_environment(os.environ)
    runtime = ("--python", request.python) if request.python else ()
    for processors in shares:
        command = (
            *(python, "-m", "kbuild", "cluster", "worker", address),
            *("--credentials", str(request.credentials), "--directory", str(request.folder)),
            *("--processors", ",".join(map(str, processors))),
            *("--memory", f"{max(1, memory_budget() // len(shares))}M"),
            *runtime,
        )
        _watch(runner, command, "a local worker", say, environ=environ)
    # Through standard input: other users of that machine can read arguments.
    secret = request.credentials.read_text()
    for remote in request.hosts:
        there = (remote.python, "-m", "kbuild", "cluster", "worker", address)
        shell = shlex.join((*there, "--credentials", STDIN, *runtime))
        # In this mode ssh fails where it would ask for a password, which nobody could answer.
        ssh = ("ssh", "-o", "BatchMode=yes", remote.host, shell)
        _watch(runner, ssh, f"the worker on {remote.host}", say, stdin=secret)


def _watch(
    runner: LocalRunner,
    command: Sequence[str],
    what: str,
    say: Callable[[str], None],
    *,
    environ: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> None:
    def run() -> None:
        done = runner.run(command, env=environ, stdin=stdin)
        lines = done.output.strip().splitlines()
        reason = f": {lines[-1]}" if lines else ""
        with suppress(ValueError):  # the streams are closed: kbuild has ended
            say(f"{what} has ended with status {done.returncode}{reason}")

    threading.Thread(target=run, name=what, daemon=True).start()


def parse_worker_memory(text: str | None) -> int:
    """MiB; 0 when nothing is said.

    Raises:
        UsageError: it is no amount of memory.
    """
    return parse_memory(text) if text else 0
