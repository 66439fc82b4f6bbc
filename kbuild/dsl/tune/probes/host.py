"""The process that imports Torch once, and forks a worker for each device.

A fork takes milliseconds where an interpreter with Torch takes seconds. The host itself never
uses a device: CUDA does not work in a fork of a process that has initialised it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import selectors
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from kbuild.dsl.tune.probes.processes import identify_worker, send_message

_BLOCK = 1 << 16


def main(commands: str, *modules: str) -> None:
    """Perform the commands, one JSON object per line, that come from a file descriptor.

    `modules` are imported first, if they are installed, so that workers need not import them.
    """
    if importlib.util.find_spec("torch") is None:
        send_message({"lacking": "torch"})
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    # Workers are forks of this process, and inherit all modules that it has imported.
    importlib.import_module(_SERVE)
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)
    host = WorkerHost(int(commands))
    try:
        host.perform()
    finally:
        host.end()


@dataclass(frozen=True)
class HostedWorker:
    """A forked worker."""

    name: str
    pid: int
    jobs: int
    """File descriptor that the worker's jobs are written to."""
    life: int
    """File descriptor of a pipe that ends when the worker ends."""


class WorkerHost:
    """Starts workers, sends them jobs, and reports how they ended."""

    def __init__(self, commands: int) -> None:
        self._commands = commands
        self._workers: dict[str, HostedWorker] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(commands, selectors.EVENT_READ)

    def perform(self) -> None:
        """Perform commands until their input ends.

        `{"ask": "devices"}`, `{"start": NAME, "settings": {...}}`, `{"to": NAME, "job": {...}}`,
        `{"stop": NAME}`.
        """
        pending = b""
        while True:
            for key, _ in self._selector.select():
                if key.fd != self._commands:
                    self._reap(key.data)
                    continue
                block = os.read(self._commands, _BLOCK)
                if not block:
                    return
                # A block may end within a line.
                *lines, pending = (pending + block).split(b"\n")
                for line in lines:
                    self._follow(json.loads(line))

    def end(self) -> None:
        """Kill all workers."""
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)

    def _follow(self, command: Mapping[str, Any]) -> None:
        if "ask" in command:
            self._start("devices", lambda _: importlib.import_module(_SERVE).list_devices())
        elif "start" in command:
            settings = command["settings"]
            program = settings.get("program", _SERVE)
            self._start(
                command["start"],
                lambda jobs: importlib.import_module(program).measure(settings, jobs),
            )
        elif command.get("to") in self._workers:  # a worker that has ended gets no jobs
            data = f"{json.dumps(command['job'])}\n".encode()
            try:
                while data:
                    data = data[os.write(self._workers[command["to"]].jobs, data) :]
            except BrokenPipeError:
                return  # it has ended, which `life` reports
        elif (worker := self._workers.get(command.get("stop", ""))) is not None:
            os.close(worker.jobs)
            self._workers[worker.name] = replace(worker, jobs=_CLOSED)

    def _start(self, name: str, work: Callable[[Iterator[dict[str, Any]]], None]) -> None:
        (source, jobs), (life, end) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                self._selector.close()
                others = (
                    fd for worker in self._workers.values() for fd in (worker.jobs, worker.life)
                )
                # Inherited ends of other workers' pipes would keep those open after their workers
                # ended.
                for descriptor in (*others, self._commands, jobs, life):
                    _close(descriptor)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                identify_worker(name)
                with os.fdopen(source, encoding="utf-8") as lines:
                    work(json.loads(line) for line in lines)
                status = 0
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            except BaseException:  # noqa: BLE001 - the interpreter would print it
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                # Not `sys.exit`: the `finally` of `main` would kill the other workers.
                os._exit(status)
        os.close(source)
        os.close(end)
        self._workers[name] = HostedWorker(name, pid, jobs, life)
        self._selector.register(life, selectors.EVENT_READ, name)

    def _reap(self, name: str) -> None:
        worker = self._workers.pop(name)
        self._selector.unregister(worker.life)
        os.close(worker.life)
        # `stop` may have closed it before.
        _close(worker.jobs)
        _, status = os.waitpid(worker.pid, 0)
        send_message({"ended": worker.name, "code": os.waitstatus_to_exitcode(status)})


_SERVE = "kbuild.dsl.tune.probes.serve"
_CLOSED = -1


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        return  # closed before
