"""Measurements on a worker: one process with Torch, which copies itself for each device.

The functions at the end are what `kbuild.plugins.cluster.tuning` asks of a worker.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kbuild.dsl.tune.host import ProbeConnection, ProbeHost
from kbuild.plugins.cluster.jobs import machine_facts
from kbuild.plugins.cluster.worker import (
    PYTHON_VARIABLE,
    WorkerState,
    current_state,
    fetch_from_scheduler,
)
from kbuild.system.processes import LocalRunner
from kbuild.toolchains.facts import FactCache
from kbuild.toolchains.host import choose_python

_IDLE_SECONDS = 60.0
"""Seconds after which a process without a job ends: its starter may be gone."""
_LAST = {"done", "ended", "waiting"}
"""Keys of the message that ends an exchange: the caller gets all messages up to it."""
Message = Mapping[str, Any]


@dataclass
class RunningProbe:
    """One process on a device of this worker."""

    connection: ProbeConnection
    name: str
    """Name of the device on the host of this worker."""
    is_busy: bool = False
    since: float = 0.0
    """Time of its last job, in seconds of the clock."""


class WorkerProbes:
    """The processes of one worker; safe to use from several threads."""

    def __init__(self, state: WorkerState) -> None:
        self._worker_state, self._lock = state, threading.Lock()
        self._closing = ExitStack()
        self._host: ProbeHost | None = None
        self._probes: dict[str, RunningProbe] = {}
        """Probes by the name that the machine that tunes gave them."""
        self._timer: threading.Timer | None = None

    def devices(self) -> list[dict[str, Any]]:
        """The devices that the worker's Torch sees.

        Raises:
            ToolchainError: it has no Torch.
        """
        return [asdict(device) for device in self._running_host().devices().devices]

    def measure(self, name: str, settings: Message, job: Message | None) -> list[Message]:
        """Have a process do a job, or go on with it when that is None.

        Returns:
            What it says until it is done, has ended or waits for the device.

        Raises:
            ToolchainError: the process with Torch has ended.
        """
        with self._lock:
            probe = self._probes.get(name)
        if probe is None:
            # Outside of the lock, which `_running_host` takes, and which cannot be taken twice.
            connection = self._running_host().connect()
            probe = RunningProbe(connection, connection.start(settings))
        with self._lock:
            self._probes[name] = probe
            probe.is_busy = True
        try:
            return self._answers(name, probe, job)
        except BaseException:
            self._probes.pop(name, None)
            raise
        finally:
            probe.is_busy, probe.since = False, time.monotonic()
            self._watch()

    def stop(self, name: str) -> None:
        """End a process."""
        with self._lock:
            probe = self._probes.pop(name, None)
        if probe is not None:
            probe.connection.send({"stop": probe.name})

    def _answers(self, name: str, probe: RunningProbe, job: Message | None) -> list[Message]:
        if job is not None:
            probe.connection.send({"to": probe.name, "job": job})
        messages: list[Message] = []
        while True:
            answer = probe.connection.receive()
            messages.append(
                # The caller knows the process by its own name, not by that on this worker's host.
                {**answer, **{key: name for key in ("worker", "ended") if key in answer}}
            )
            if "ended" in answer:
                self._probes.pop(name, None)
            if answer.keys() & _LAST:
                return messages

    def _running_host(self) -> ProbeHost:
        with self._lock:
            if self._host is None or self._host.has_ended:
                # An `ExitStack` that was closed can be filled again.
                self._closing.close()
                asked = os.environ.get(PYTHON_VARIABLE, "")
                runner, facts = LocalRunner(), FactCache(self._worker_state.cache)
                chosen = choose_python(Path(asked) if asked else None, facts, runner)
                python, log = (
                    Path(chosen["python"]["executable"]),
                    self._worker_state.folder / "probes.txt",
                )
                host = ProbeHost(runner, python, self._worker_state.folder, log)
                self._host = self._closing.enter_context(host)
            return self._host

    def _watch(self) -> None:
        """End idle processes in a while."""
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(_IDLE_SECONDS, self._stop_idle)
                self._timer.daemon = True
                self._timer.start()

    def _stop_idle(self) -> None:
        until = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            self._timer = None
            idle = [
                name
                for name, probe in self._probes.items()
                if not probe.is_busy and probe.since <= until
            ]
        for name in idle:
            self.stop(name)
        if self._probes:
            self._watch()


@cache
def _probes_of(state: WorkerState) -> WorkerProbes:
    return WorkerProbes(state)


def list_devices() -> dict[str, Any]:
    """Describe this worker, and its devices with the fields of `Device`."""
    state = current_state()
    return {"facts": machine_facts(state.cache).to_json(), "devices": _probes_of(state).devices()}


def measure_on_device(
    session: str, name: str, settings: Message, job: Message | None
) -> list[Message]:
    """See `WorkerProbes.measure`; variant and project are fetched first, by their digests."""
    state = current_state()
    folders = {
        key: str(
            state.unpacked(settings[key], lambda digest: fetch_from_scheduler(session, digest))
        )
        for key in ("variant", "root")
    }
    return _probes_of(state).measure(name, {**settings, **folders}, job)


def stop_probe(name: str) -> None:
    """See `WorkerProbes.stop`."""
    _probes_of(current_state()).stop(name)
