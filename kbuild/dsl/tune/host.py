"""The user's interpreter: its process with Torch, messages to and from it, and its devices."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from kbuild.backends import rocm
from kbuild.project.config.issue import listed
from kbuild.system.errors import DamagedFileError, ToolchainError, UsageError
from kbuild.system.processes import LineListener, ProcessResult, Runner
from kbuild.system.untrusted import parse_json

PROBE_PACKAGE = "kbuild.dsl.tune.probes"
ALL = "all"
CPU = "cpu"
"""The processor, which only tests tune for."""


@dataclass(frozen=True)
class Device:
    """One device."""

    id: str
    """Torch's name: `cuda:0`, also for AMD's GPUs."""
    name: str
    arch: str
    sm_count: int
    driver: str = ""
    uuid: str = ""
    """Identifies the GPU in every process of the machine; empty if Torch does not report it."""
    torch: str = ""
    """Release of the Torch that sees the device."""

    def has_name(self, name: str) -> bool:
        """True for its id, the short forms `0` and `cuda`, and a part of the model's name."""
        is_model = bool(name) and not name.isdigit()
        is_part = is_model and name.casefold() in self.name.casefold()
        return self.id == _device_id(name) or is_part

    @property
    def backend(self) -> str:
        """The backend whose variants run on it."""
        return "rocm" if rocm.is_arch(self.arch) else CPU if self.arch == CPU else "cuda"

    @property
    def capability(self) -> str:
        """The arch as `build.toml` writes it: `9.0`, `gfx942`."""
        number = self.arch.removeprefix("sm_")
        return self.arch if number == self.arch else f"{number[:-1]}.{number[-1]}"

    @property
    def answers(self) -> dict[str, int]:
        """The answers to expressions about a device."""
        number = self.arch.removeprefix("sm_")
        capability = int(number) if number.isdigit() else 0
        return {"sm_count()": self.sm_count, "capability()": capability}

    @property
    def build(self) -> tuple[str, str]:
        """The key that devices share which run the same variant."""
        return self.torch, self.backend

    @property
    def model(self) -> tuple[str, str]:
        """The key that devices share which use one table."""
        return self.name, self.arch


@dataclass(frozen=True)
class AvailableDevices:
    """The devices to measure on: of this machine, or of other machines."""

    devices: tuple[Device, ...]
    is_elsewhere: bool = False
    """True if ids begin with the name of a worker: `WORKER/cuda:0`."""

    def chosen(self, wanted: Sequence[str]) -> tuple[Device, ...]:
        """The devices with these names, or of a model with such a name; `all` means every GPU.

        Without names, it is the first GPU of this machine, or every GPU of other machines.

        Raises:
            ToolchainError: there is no GPU at all.
            UsageError: one of them does not exist.
        """
        gpus = tuple(device for device in self.devices if device.backend != CPU)
        names = wanted or ([ALL] if self.is_elsewhere else [gpu.id for gpu in gpus[:1]])
        named = {name: [one for one in self.devices if one.has_name(name)] for name in names}
        if not gpus and not any(named.values()):
            raise self._no_gpu_error()
        if ALL in names:
            return gpus
        for name, some in named.items():
            if not some:
                hint = f"there is: {listed([*(gpu.id for gpu in gpus), ALL])}"
                raise UsageError(f"there is no device `{_device_id(name)}`", hint=hint)
        return tuple(dict.fromkeys(device for some in named.values() for device in some))

    def _no_gpu_error(self) -> ToolchainError:
        if self.is_elsewhere:
            hint = "their interpreters need a Torch that finds it"
            return ToolchainError("no machine of the executor has a GPU", hint=hint)
        torch = next((device.torch for device in self.devices), "")
        hint = "--python names an interpreter whose Torch is built for the GPU"
        return ToolchainError(f"Torch {torch} finds no GPU here", hint=hint)


def torch_missing_error(python: Path) -> ToolchainError:
    """Error for an interpreter that has no Torch."""
    hint = "activate an environment that has Torch, or name its interpreter with --python"
    return ToolchainError(f"`{python}` has no Torch to run the kernel with", hint=hint)


def probe_command(python: Path, *arguments: str) -> tuple[str, ...]:
    """Command that starts the programs of `probes`."""
    return (str(python), str(files(PROBE_PACKAGE)), *arguments)


def probe_environment() -> dict[str, str]:
    """Environment variables of the programs of `probes`."""
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def parse_answer(line: str) -> dict[str, Any]:
    """Parse a JSON object from a line; empty for other lines, since kernels may print too."""
    if not line.startswith("{"):
        return {}
    try:
        return parse_json(line, "the answer", "an answer")
    except DamagedFileError:
        return {}


def _device_id(name: str) -> str:
    return f"cuda:{name}" if name.isdigit() else "cuda:0" if name == "cuda" else name


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
            # Under the lock, since another thread may be writing.
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
            # No message would ever arrive from a process that has ended.
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
            # Before the worker starts, since its first message may arrive at once.
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
            # The process has ended: with this end open, `send` would write to nobody, and then
            # block.
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
            # The first reason stays: an interpreter without Torch says so before it exits.
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
