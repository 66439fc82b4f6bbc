"""The host process with Torch in the user's interpreter, and messages to and from it."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kbuild.dsl.tune.devices import (
    AvailableDevices,
    Device,
    parse_answer,
    probe_command,
    probe_environment,
    torch_missing_error,
)
from kbuild.system.errors import ToolchainError
from kbuild.system.processes import LineListener, ProcessResult, Runner

_TAIL = 6
_CLOSED = -1
_DEVICES = "devices"
"""Name of the worker that lists devices."""


class ProbeHost:
    """Context with the host process; leaving it ends the process and its workers."""

    def __init__(
        self,
        runner: Runner,
        python: Path,
        root: Path,
        log: Path | None = None,
        *,
        modules: Sequence[str] = (),
        listen: LineListener | None = None,
    ) -> None:
        """Import `modules` before workers start; call `listen` with lines that workers print."""
        self.python = python
        self._runner, self._root, self._log = runner, root, log
        self._modules, self._print = tuple(modules), listen
        self._lock, self._sink_lock = threading.Lock(), threading.Lock()
        self._connections: list[ProbeConnection] = []
        self._listeners: dict[str, ProbeConnection] = {}
        """Worker -> the connection that gets its messages."""
        self._end: Mapping[str, Any] = {}
        """Last message, once the process has ended."""
        self._names = 0

    def __enter__(self) -> ProbeHost:  # noqa: PYI034 - `Self` is not in Python 3.10
        source, self._sink = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(source,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._sink_lock:
            os.close(self._sink)
            self._sink = _CLOSED
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        """True when the process has ended, so that nothing can be measured with it."""
        return bool(self._end)

    def connect(self) -> ProbeConnection:
        """Return a connection that gets only the messages of the workers that it starts."""
        connection = ProbeConnection(self)
        with self._lock:
            self._connections.append(connection)
            if self._end:
                connection.answers.put(self._end)
        return connection

    def devices(self) -> AvailableDevices:
        """The devices that the interpreter's Torch sees.

        Raises:
            ToolchainError: it has no Torch, or does not answer.
        """
        connection = self.connect()
        with self._lock:
            self._listeners[_DEVICES] = connection
        self.send({"ask": _DEVICES})
        while True:
            answer = connection.receive()
            if "devices" in answer:
                torch = answer["torch"]
                devices = tuple(Device(**device, torch=torch) for device in answer["devices"])
                return AvailableDevices(devices)
            if answer.get("ended") == _DEVICES:
                raise ToolchainError(f"`{self.python}` did not list its devices: {answer['code']}")

    def start(self, connection: ProbeConnection, settings: Mapping[str, Any]) -> str:
        """Start a worker with these settings and return its name."""
        with self._lock:
            self._names += 1
            name = f"w{self._names}"
            self._listeners[name] = connection
        self.send({"start": name, "settings": dict(settings)})
        return name

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command to the host process; see `probes.host`."""
        data = f"{json.dumps(command)}\n".encode()
        with self._sink_lock:
            try:
                while data and self._sink != _CLOSED:
                    data = data[os.write(self._sink, data) :]
            except BrokenPipeError:
                return  # the process has ended, which `receive` reports

    def _run(self, source: int) -> None:
        try:
            done = self._runner.run(
                probe_command(self.python, str(source), *self._modules),
                cwd=self._root,
                env=probe_environment(),
                log=self._log,
                listen=self._listen,
                inherit=(source,),
            )
        except Exception as error:  # noqa: BLE001 - the other thread raises it
            done = ProcessResult((str(self.python),), 1, str(error), 0.0)
        finally:
            os.close(source)
        self._finish({"exit": done})

    def _listen(self, line: str) -> None:
        answer = parse_answer(line)
        if line and not answer and self._print is not None:
            self._print(line)
        name = str(answer.get("worker") or answer.get("ended") or "")
        with self._lock:
            listener = self._listeners.get(name)
            if "ended" in answer:
                self._listeners.pop(name, None)
        if listener is not None:
            listener.answers.put(answer)
        elif "lacking" in answer:
            self._finish(answer)

    def _finish(self, answer: Mapping[str, Any]) -> None:
        with self._lock:
            self._end = self._end or answer
            for connection in self._connections:
                connection.answers.put(self._end)


class ProbeConnection:
    """`ProbeTransport` to workers of a host process on this machine."""

    def __init__(self, host: ProbeHost) -> None:
        self.answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._host = host

    @property
    def interpreter(self) -> str:
        """See `ProbeTransport.interpreter`."""
        return f"`{self._host.python}`"

    def start(self, settings: Mapping[str, Any]) -> str:
        """See `ProbeTransport.start`."""
        return self._host.start(self, settings)

    def send(self, command: Mapping[str, Any]) -> None:
        """See `ProbeTransport.send`."""
        self._host.send(command)

    def receive(self, timeout_s: float | None = None) -> Mapping[str, Any]:
        """See `ProbeTransport.receive`; empty if nothing arrives in that time.

        Raises:
            ToolchainError: the process has no Torch, or has ended.
        """
        try:
            answer = self.answers.get(timeout=timeout_s)
        except queue.Empty:
            return {}
        if "lacking" in answer:
            raise torch_missing_error(self._host.python)
        if isinstance(answer.get("exit"), ProcessResult):
            raise _ended_error(answer["exit"])
        return answer


def _ended_error(done: ProcessResult) -> ToolchainError:
    lines = [line for line in done.output.splitlines() if line and not parse_answer(line)]
    tail = "".join(f"\n    {line}" for line in lines[-_TAIL:])
    return ToolchainError(
        f"the process with Torch ended too early (exit code {done.returncode}){tail}",
        hint=f"the command was: {done.command}",
    )
