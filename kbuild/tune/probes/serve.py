"""Answers what kbuild asks: which devices there are, and how fast each candidate is."""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SILENCE_S = 180.0
"""A process that says nothing for so long hangs, and is ended."""
NORMAL = -1
"""The control op's word for the choice that users get."""
_SHOWN = 300
Job = Mapping[str, Any]


class BrokenDeviceError(Exception):
    """The device answers nothing any more in this process."""


def main(question: str, *_rest: str) -> None:
    """Answer `devices` or `measure`."""
    if importlib.util.find_spec("torch") is None:
        say({"lacking": "torch"})
    elif question == "devices":
        torch = importlib.import_module("torch")
        found = importlib.import_module("kbuild.tune.probes.devices").devices()
        say({"torch": str(torch.__version__), "devices": found})
    else:
        measure([json.loads(line) for line in sys.stdin if line.strip()])


def measure(lines: list[dict[str, Any]]) -> None:
    """Load the variant that the first line names, and measure the jobs of the others."""
    settings, *jobs = lines
    ends = time.monotonic() + float(settings["seconds"])
    try:
        sys.path.insert(0, settings["root"])
        bench = Bench(settings)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        say({"unloadable": first_words(error)})
        return
    for job in jobs:
        if time.monotonic() >= ends:
            return
        try:
            say({"done": job["id"], **bench.measured(job)})
        except BrokenDeviceError as error:
            say({"broken": job["id"], "reason": str(error)})
            return
        except Exception as error:  # noqa: BLE001 - inputs and references are the project's
            say({"done": job["id"], "error": first_words(error)})
            bench.refresh(job)


@dataclass
class Bench:
    """A loaded variant on one device."""

    settings: Mapping[str, Any]
    tensors: Any = field(init=False)
    devices: Any = field(init=False)
    stopwatch: Any = field(init=False)
    ops: Any = field(init=False)

    def __post_init__(self) -> None:
        torch: Any = importlib.import_module("torch")
        self.tensors = importlib.import_module("kbuild.tune.probes.tensors")
        self.devices = importlib.import_module("kbuild.tune.probes.devices")
        device = self.settings["device"]
        if device != "cpu":
            torch.cuda.set_device(device)
        load(Path(self.settings["variant"]), self.settings["namespace"])
        self.ops = getattr(torch.ops, self.settings["namespace"])
        self.stopwatch = self.devices.stopwatch_for(device)

    def measured(self, job: Job) -> dict[str, Any]:
        """The times of the job's candidates, and what is wrong with the others."""
        choose = getattr(self.ops, job["choose"])
        try:
            for launch, candidate in job["fixed"]:
                choose(launch, candidate)
            return self._measured(job, choose)
        finally:
            for launch in (*(pair[0] for pair in job["fixed"]), job["launch"]):
                choose(launch, NORMAL)

    def _measured(self, job: Job, choose: Callable[[int, int], object]) -> dict[str, Any]:
        from kbuild.tune.probes.race import Race, Rules

        values = self._inputs(job)
        checked = _Checked(self, job, values, self._expected(job, values))
        for candidate in job["candidates"]:
            choose(job["launch"], candidate)
            checked.attempt(candidate)

        own = self.tensors.copies(values, job["arguments"])

        def prepare(candidate: int) -> None:
            tell(job, candidate)
            self.tensors.restore(own, values, job["arguments"])
            choose(job["launch"], candidate)

        def call() -> None:
            self.call(job, own)

        rules = Rules(**job.get("rules", {}))
        race = Race(self.stopwatch, prepare, call, time.monotonic, rules)
        runners = race.perform(checked.right, checked.default) if checked.right else {}
        return {
            "times": {str(one): round(runner.median, 3) for one, runner in runners.items()},
            "runs": {str(one): len(runner.samples) for one, runner in runners.items()},
            "failed": checked.failed,
            "wrong": checked.wrong,
            "default": checked.default,
        }

    def call(self, job: Job, values: list[Any]) -> Any:
        """One call of the op."""
        pairs = self.tensors.joined(job["arguments"], values)
        plain = [value for one, value in pairs if not one["keyword"]]
        named = {one["name"]: value for one, value in pairs if one["keyword"]}
        return getattr(self.ops, job["op"])(*plain, **named)

    def synchronize(self) -> None:
        """Wait for the device.

        Raises:
            BrokenDeviceError: it reports an error that stays.
        """
        try:
            self.devices.synchronize(self.settings["device"])
        except Exception as error:
            raise BrokenDeviceError(first_words(error)) from error

    def refresh(self, job: Job) -> None:
        """End the process when the device answers nothing any more: the next one finds it well."""
        try:
            self.synchronize()
        except BrokenDeviceError as error:
            say({"broken": job["id"], "reason": str(error)})
            raise SystemExit(0) from error

    def _inputs(self, job: Job) -> list[Any]:
        tell(job, None)
        device = self.settings["device"]
        if not job["inputs"]:
            return list(self.tensors.made_up(job["arguments"], device))
        given = function(job["inputs"])(**job["facts"], device=device)
        return [
            self.tensors.chosen(given, one, value)
            for one, value in zip(
                job["arguments"], self.tensors.made_up(job["arguments"], device), strict=True
            )
        ]

    def _expected(self, job: Job, values: list[Any]) -> list[Any] | None:
        if not job["reference"]:
            return None
        own = self.tensors.copies(values, job["arguments"])
        pairs = self.tensors.joined(job["arguments"], own)
        returned = function(job["reference"])(**{one["name"]: value for one, value in pairs})
        self.synchronize()
        return list(self.tensors.results(returned, [], []))


@dataclass
class _Checked:
    """Which candidates run, and give what they should."""

    bench: Bench
    job: Job
    values: list[Any]
    expected: list[Any] | None
    right: list[int] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    default: int | None = None

    def attempt(self, candidate: int) -> None:
        """Run it once, and compare."""
        job, tensors = self.job, self.bench.tensors
        tell(job, candidate)
        own = tensors.copies(self.values, job["arguments"])
        try:
            returned = self.bench.call(job, own)
        except Exception as error:  # noqa: BLE001 - it does not fit, or something is wrong with it
            self.bench.synchronize()
            self.failed[str(candidate)] = first_words(error)
            return
        self.bench.synchronize()
        found = tensors.results(returned, own, job["arguments"])
        if self.expected is None:
            self.expected = found
        words = tensors.difference(found, self.expected, job["rtol"], job["atol"])
        if words:
            self.wrong[str(candidate)] = words
            return
        self.right.append(candidate)
        self.default = candidate if self.default is None else self.default


def load(folder: Path, namespace: str) -> None:
    """Import the variant as a package of that name."""
    spec = importlib.util.spec_from_file_location(namespace, folder / "__init__.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no `__init__.py`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[namespace] = module
    spec.loader.exec_module(module)


def function(written: str) -> Callable[..., Any]:
    """The function that `module:function` names, looked for from the project's folder."""
    module, _, name = written.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def first_words(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:_SHOWN]}".rstrip(": ")


def tell(job: Job, candidate: int | None) -> None:
    """Say what begins: it may be the last that is heard of this process."""
    say({"doing": job["id"], "candidate": candidate})


def say(document: dict[str, Any]) -> None:
    """One line of JSON, at once."""
    faulthandler.dump_traceback_later(SILENCE_S, exit=True)
    sys.stdout.write("\n" + json.dumps(document) + "\n")
    sys.stdout.flush()
