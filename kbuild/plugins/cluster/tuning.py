"""Measures on the GPUs of a cluster: carries messages between `kbuild tune` and the workers."""

from __future__ import annotations

import os
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from kbuild.dsl.tune.host import AvailableDevices, Device
from kbuild.plugins.cluster.connect import connect, credentials_file, limits_of, warn_of_reach
from kbuild.plugins.cluster.jobs import MachineFacts, archive_files, machine_facts
from kbuild.plugins.cluster.worker import METADATA_KEY
from kbuild.plugins.cluster.worker_probes import list_devices, measure_on_device, stop_probe
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree

if TYPE_CHECKING:
    from distributed import Client, Future

_POLL_SECONDS = 1.0
_GONE_SECONDS = 5.0
"""Seconds after which a worker that the scheduler does not list has gone."""
_LIST_SECONDS = 300.0
"""Seconds in which a worker imports Torch and lists its devices."""
_PRIORITY = 10
"""Measurements come before compilers."""
_BYTECODE = "__pycache__"


@contextmanager
def cluster_probes(where: str, services: Services, root: Path) -> Iterator[ClusterProbes]:
    """The devices of the cluster `where`, for the variants of a project.

    Raises:
        UsageError, ToolchainError: see `connect` and `limits_of`.
    """
    wait_s = limits_of(os.environ).worker_seconds
    client = connect(where, credentials_file(os.environ, services.cache))
    warn_of_reach(client, where, services.ui.warn)
    facts = machine_facts(services.cache).for_variants
    probes = ClusterProbes(client, facts, root, services.ui.warn, wait_s)
    try:
        yield probes
    finally:
        probes.close()


class ClusterProbes:
    """See `ProbeSource`: ids are `WORKER/cuda:0`. Close it at the end."""

    def __init__(
        self,
        client: Client,
        facts: MachineFacts,
        root: Path,
        say: Callable[[str], None],
        wait_s: float,
    ) -> None:
        """`wait_s` is how long the first worker is waited for."""
        self.client, self.session = client, uuid.uuid4().hex
        self._facts, self._root, self._say, self._wait_s = facts, root, say, wait_s
        self._addresses: dict[str, str] = {}
        """Addresses by the name of the worker."""
        self._lock = Lock()
        self._digests: dict[str, str] = {}
        """Archives that workers can fetch, by folder."""
        self._absent: dict[str, float] = {}

    def devices(self) -> AvailableDevices:
        """See `ProbeSource.devices`; a GPU that several workers see is the first one's.

        Raises:
            ToolchainError: the cluster has no worker.
        """
        workers = self._present_workers()
        listed = {
            name: self.client.submit(
                list_devices, workers=[address], pure=False, priority=_PRIORITY
            )
            for name, address in sorted(workers.items())
        }
        devices: list[Device] = []
        until = time.monotonic() + _LIST_SECONDS
        for name, future in listed.items():
            try:
                answer = future.result(timeout=max(1.0, until - time.monotonic()))
            except Exception as error:  # noqa: BLE001 - whatever a worker raises, others may do
                self._say(f"worker {name} is not used: {_first_line(error)}")
                future.cancel()
                continue
            reason = self._facts.difference(MachineFacts(**answer["facts"]))
            if reason:
                self._say(f"worker {name} is not used: {reason}")
                continue
            self._addresses[name] = workers[name]
            known = {device.uuid for device in devices}
            devices += [
                Device(**{**facts, "id": f"{name}/{facts['id']}"})
                for facts in answer["devices"]
                if not facts["uuid"] or facts["uuid"] not in known
            ]
        return AvailableDevices(tuple(devices), is_elsewhere=True)

    def connect(self) -> ClusterConnection:
        """See `ProbeSource.connect`."""
        return ClusterConnection(self)

    def address(self, worker: str) -> str:
        """The address of a worker."""
        return self._addresses[worker]

    def has_gone(self, address: str) -> bool:
        """True when a worker has been away for some seconds."""
        now = time.monotonic()
        with self._lock:
            if address in self.client.scheduler_info()["workers"]:
                self._absent.pop(address, None)
                return False
            return now - self._absent.setdefault(address, now) > _GONE_SECONDS

    def digest_of(self, folder: str) -> str:
        """The archive of a variant, or of the project's Python files; workers can fetch it.

        Raises:
            OSError: a file cannot be read, or the scheduler does not answer.
        """
        with self._lock:
            if folder not in self._digests:
                path = Path(folder)
                if path == self._root:
                    paths = SourceTree(path).walk(".", skip=("build",))
                    files = {name: path / name for name in paths if name.endswith(".py")}
                else:
                    files = {
                        str(file.relative_to(path)): file
                        for file in path.rglob("*")
                        if file.is_file() and _BYTECODE not in file.parts
                    }
                archive = archive_files(files)
                keys = [METADATA_KEY, self.session, archive.digest]
                self.client.set_metadata(keys, archive.data)
                self._digests[folder] = archive.digest
            return self._digests[folder]

    def close(self) -> None:
        """Remove what was put down for workers."""
        with suppress(Exception):
            for digest in self._digests.values():
                self.client.set_metadata([METADATA_KEY, self.session, digest], None)
        with suppress(Exception):
            self.client.close(timeout=2)

    def _present_workers(self) -> Mapping[str, str]:
        """Addresses by name, as soon as there are any.

        Raises:
            ToolchainError: there are none.
        """
        until = time.monotonic() + self._wait_s
        while not (workers := self.client.scheduler_info()["workers"]):
            if time.monotonic() > until:
                hint = "start some with `kbuild cluster worker`"
                raise ToolchainError("the cluster has no worker", hint=hint)
            time.sleep(_POLL_SECONDS)
        return {str(facts.get("name", address)): address for address, facts in workers.items()}


@dataclass
class RemoteProbe:
    """A process on a device of a worker."""

    address: str
    settings: Mapping[str, Any]
    task: Future[Any] | None = None
    """The measurement in progress."""


class ClusterConnection:
    """See `ProbeTransport`: a process starts with its first job, which is one of Dask's tasks."""

    interpreter = "the worker's Python"

    def __init__(self, probes: ClusterProbes) -> None:
        self._source = probes
        self._answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._probes: dict[str, RemoteProbe] = {}
        self._stopping: list[Future[Any]] = []
        self._looked = time.monotonic()

    def start(self, settings: Mapping[str, Any]) -> str:
        """See `ProbeTransport.start`.

        Raises:
            OSError: see `ClusterProbes.digest_of`.
        """
        name = f"probe-{uuid.uuid4().hex}"
        worker, _, device = settings["device"].rpartition("/")
        digests = {key: self._source.digest_of(settings[key]) for key in ("variant", "root")}
        own = {**settings, **digests, "device": device}
        self._probes[name] = RemoteProbe(self._source.address(worker), own)
        return name

    def send(self, command: Mapping[str, Any]) -> None:
        """See `ProbeTransport.send`."""
        name = command.get("to") or command["stop"]
        probe = self._probes.get(name)
        if probe is None:
            return
        if "stop" in command:
            del self._probes[name]
            self._stopping.append(self._submit(probe, stop_probe, name))
        else:
            self._measure(name, probe, command["job"])

    def receive(self) -> Mapping[str, Any]:
        """See `ProbeTransport.receive`."""
        while True:
            if time.monotonic() - self._looked > _POLL_SECONDS:
                self._find_lost()
            with suppress(queue.Empty):
                return self._answers.get(timeout=_POLL_SECONDS)

    def _measure(self, name: str, probe: RemoteProbe, job: Mapping[str, Any] | None) -> None:
        session, settings = self._source.session, probe.settings
        task = self._submit(probe, measure_on_device, session, name, settings, job)
        probe.task = task
        task.add_done_callback(lambda done: self._settle(name, probe, done))

    def _submit(
        self, probe: RemoteProbe, function: Callable[..., Any], *values: Any
    ) -> Future[Any]:
        submit, where = self._source.client.submit, [probe.address]
        return submit(function, *values, workers=where, pure=False, priority=_PRIORITY)

    def _settle(self, name: str, probe: RemoteProbe, task: Future[Any]) -> None:
        """Hand on what a task answers; runs in a thread of Dask's."""
        # Nobody waits for a process that was stopped, or whose worker has gone.
        is_current = probe.task is task and name in self._probes
        if not is_current:
            return
        try:
            messages = task.result(timeout=_LIST_SECONDS)
        except BaseException as error:  # noqa: BLE001 - also of a task that was cancelled
            self._answers.put({"lost": name, "reason": _first_line(error)})
            return
        # The task has ended with this message; the next one waits until the job is done.
        if "waiting" in messages[-1]:
            self._measure(name, probe, None)
        for message in messages:
            self._answers.put(message)

    def _find_lost(self) -> None:
        self._looked = time.monotonic()
        for name, probe in list(self._probes.items()):
            if probe.task is not None and self._source.has_gone(probe.address):
                del self._probes[name]
                probe.task.cancel()
                self._answers.put({"lost": name, "reason": "its worker has gone"})


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
