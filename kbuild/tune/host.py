"""The process in the user's interpreter that has Torch, and what it is told and says."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kbuild.errors import ToolchainError
from kbuild.runtime.processes import ProcessResult, Runner
from kbuild.tune.devices import (
    AvailableDevices,
    Device,
    parse_answer,
    probe_command,
    probe_environment,
    torch_missing_error,
)

_TAIL = 6


class ProbeHost:
    """Starts the process when it is entered, and ends it, with all of its workers, at the end."""

    def __init__(self, runner: Runner, python: Path, root: Path, log: Path | None = None) -> None:
        self.python = python
        self._runner, self._root, self._log = runner, root, log
        self._answers: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
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
        os.close(self._sink)
        self._thread.join()

    def devices(self) -> AvailableDevices:
        """The devices that the interpreter's Torch sees.

        Raises:
            ToolchainError: it has no Torch, or does not answer.
        """
        self.send({"ask": "devices"})
        while True:
            answer = self.receive()
            if "devices" in answer:
                devices = tuple(Device(**device) for device in answer["devices"])
                return AvailableDevices(answer["torch"], devices)
            if answer.get("ended") == "devices":
                raise ToolchainError(f"`{self.python}` did not list its devices: {answer['code']}")

    def start(self, settings: Mapping[str, Any]) -> str:
        """Start a worker with these settings; its name."""
        self._names += 1
        name = f"w{self._names}"
        self.send({"start": name, "settings": dict(settings)})
        return name

    def send(self, command: Mapping[str, Any]) -> None:
        """Give a command; see `probes.host`."""
        data = f"{json.dumps(command)}\n".encode()
        try:
            while data:
                data = data[os.write(self._sink, data) :]
        except BrokenPipeError:
            return  # `receive` says why

    def receive(self) -> Mapping[str, Any]:
        """What the process or one of its workers says next.

        Raises:
            ToolchainError: the process has no Torch, or has ended.
        """
        answer = self._answers.get()
        if "lacking" in answer:
            raise torch_missing_error(self.python)
        if isinstance(answer.get("exit"), ProcessResult):
            raise _ended_error(answer["exit"])
        return answer

    def _run(self, source: int) -> None:
        try:
            done = self._runner.run(
                probe_command(self.python, str(source)),
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
        self._answers.put({"exit": done})

    def _listen(self, line: str) -> None:
        if answer := parse_answer(line):
            self._answers.put(answer)


def _ended_error(done: ProcessResult) -> ToolchainError:
    lines = [line for line in done.output.splitlines() if line and not parse_answer(line)]
    tail = "".join(f"\n    {line}" for line in lines[-_TAIL:])
    return ToolchainError(
        f"the process with Torch ended too early (exit code {done.returncode}){tail}",
        hint=f"the command was: {done.command}",
    )
