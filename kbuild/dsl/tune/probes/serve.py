"""The program of a worker: lists devices, or measures a variant's candidates on one of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kbuild.dsl.tune.probes import devices
from kbuild.dsl.tune.probes.processes import device_in_use, pause_watchdog, send_message
from kbuild.dsl.tune.probes.race import Race, RaceRules

DEFAULT_CHOICE = -1
"""Number that makes the control op select the candidate that users get."""
_SHOWN = 300
Job = Mapping[str, Any]


class BrokenDeviceError(Exception):
    """The device does not respond in this process any more."""


def list_devices() -> None:
    """Send the devices that Torch sees."""
    send_message({"torch": str(devices.torch.__version__), "devices": devices.devices()})


def measure(settings: Mapping[str, Any], jobs: Iterable[Job]) -> None:
    """Load the variant that the settings name, and measure jobs as they arrive."""
    try:
        sys.path.insert(0, settings["root"])
        bench = BenchmarkServer(settings)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        send_message({"unloadable": first_words(error)})
        return
    send_message({"ready": True})
    pause_watchdog()
    for job in jobs:
        about = {"done": job["id"], "repetition": job["repetition"]}
        try:
            with device_in_use(bench.lock_name, partial(tell_waiting, job)):
                began = time.monotonic()
                answer = bench.measured(job)
                answer["seconds"] = round(time.monotonic() - began, 3)
            send_message(about | answer)
        except BrokenDeviceError as error:
            send_message({"broken": job["id"], "reason": str(error)})
            return
        except Exception as error:  # noqa: BLE001 - inputs and references are the project's
            send_message(about | {"error": first_words(error)})
            bench.refresh(job)
        pause_watchdog()


def tell_waiting(job: Job) -> None:
    """Report that another process measures on the device, which may take long."""
    send_message({"waiting": job["id"]})
    pause_watchdog()


@dataclass
class BenchmarkServer:
    """A variant, loaded for one device."""

    settings: Mapping[str, Any]
    stopwatch: Any = field(init=False)
    ops: Any = field(init=False)
    lock_name: str = field(init=False)

    def __post_init__(self) -> None:
        torch = devices.torch
        device = self.settings["device"]
        if device != "cpu":
            torch.cuda.set_device(device)
        load(Path(self.settings["variant"]), self.settings["namespace"])
        self.ops = getattr(torch.ops, self.settings["namespace"])
        self.stopwatch = devices.stopwatch_for(device)
        self.lock_name = devices.lock_name(device)

    def measured(self, job: Job) -> dict[str, Any]:
        """Measure a job's candidates: times, and what is wrong with the others."""
        choose = getattr(self.ops, job["choose"])
        try:
            for launch, candidate in job["fixed"]:
                choose(launch, candidate)
            return self._measured(job, choose)
        finally:
            # The process stays for further jobs, which fix other launches.
            for launch in (*(pair[0] for pair in job["fixed"]), job["launch"]):
                choose(launch, DEFAULT_CHOICE)

    def _measured(self, job: Job, choose: Callable[[int, int], object]) -> dict[str, Any]:
        values = self._inputs(job)
        checked = _CandidateCheck(self, job, values, self._expected(job, values))
        for candidate in job["candidates"]:
            choose(job["launch"], candidate)
            checked.attempt(candidate)

        arguments = devices.copies(values, job["arguments"])

        def prepare(candidate: int) -> None:
            tell(job, candidate)
            devices.restore(arguments, values, job["arguments"])
            choose(job["launch"], candidate)

        def call() -> None:
            self.call(job, arguments)

        rules = RaceRules(**{**self.stopwatch.rules, **job.get("rules", {})})
        race = Race(self.stopwatch, prepare, call, time.monotonic, rules)
        runners = race.perform(checked.right, checked.default) if checked.right else {}
        return {
            "times": {str(index): round(runner.median, 3) for index, runner in runners.items()},
            "alive": [index for index, runner in runners.items() if not runner.is_out],
            "runs": {str(index): len(runner.samples) for index, runner in runners.items()},
            "failed": checked.failed,
            "wrong": checked.wrong,
            "default": checked.default,
        }

    def call(self, job: Job, values: list[Any]) -> Any:
        """Call the op once."""
        pairs = devices.joined(job["arguments"], values)
        plain = [value for argument, value in pairs if not argument["keyword"]]
        named = {argument["name"]: value for argument, value in pairs if argument["keyword"]}
        return getattr(self.ops, job["op"])(*plain, **named)

    def synchronize(self) -> None:
        """Wait for the device.

        Raises:
            BrokenDeviceError: it reports an error that persists in this process.
        """
        try:
            devices.synchronize(self.settings["device"])
        except Exception as error:
            raise BrokenDeviceError(first_words(error)) from error

    def refresh(self, job: Job) -> None:
        """End the process if the device is broken in it; the next process can use it again."""
        try:
            self.synchronize()
        except BrokenDeviceError as error:
            send_message({"broken": job["id"], "reason": str(error)})
            raise SystemExit(0) from error

    def _inputs(self, job: Job) -> list[Any]:
        tell(job, None)
        device = self.settings["device"]
        if not job["inputs"]:
            return list(devices.make_inputs(job["arguments"], device))
        inputs = function(job["inputs"])(**job["facts"], device=device)
        values = devices.make_inputs(job["arguments"], device)
        pairs = zip(job["arguments"], values, strict=True)
        return [devices.chosen(inputs, argument, value) for argument, value in pairs]

    def _expected(self, job: Job, values: list[Any]) -> list[Any] | None:
        if not job["reference"] or job["repetition"]:
            # Later processes measure only candidates whose results the first one has compared.
            return None
        arguments = devices.copies(values, job["arguments"])
        pairs = devices.joined(job["arguments"], arguments)
        named = {argument["name"]: value for argument, value in pairs}
        returned = function(job["reference"])(**named)
        self.synchronize()
        return list(devices.results(returned, [], []))


@dataclass
class _CandidateCheck:
    """The candidates that run, and those whose results are right."""

    bench: BenchmarkServer
    job: Job
    values: list[Any]
    expected: list[Any] | None
    right: list[int] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    default: int | None = None

    def attempt(self, candidate: int) -> None:
        """Run the candidate once and compare its results."""
        job = self.job
        tell(job, candidate)
        arguments = devices.copies(self.values, job["arguments"])
        try:
            returned = self.bench.call(job, arguments)
        except Exception as error:  # noqa: BLE001 - it does not fit, or something is wrong with it
            # An error of the device shows here; later it would be the next candidate's.
            self.bench.synchronize()
            self.failed[str(candidate)] = first_words(error)
            return
        self.bench.synchronize()
        results = devices.results(returned, arguments, job["arguments"])
        if self.expected is None or job["repetition"]:  # the first process compared
            self.expected = results
        difference = devices.difference(results, self.expected, job["rtol"], job["atol"])
        if difference:
            self.wrong[str(candidate)] = difference
            return
        self.right.append(candidate)
        self.default = candidate if self.default is None else self.default


def load(folder: Path, namespace: str) -> None:
    """Import the variant as a package of that name."""
    spec = importlib.util.spec_from_file_location(namespace, folder / "__init__.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} has no `__init__.py`")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, because its modules import each other relatively.
    sys.modules[namespace] = module
    spec.loader.exec_module(module)


def function(written: str) -> Callable[..., Any]:
    """Import the function that `module:function` names, from the project's folder."""
    module, _, name = written.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return target


def first_words(error: BaseException) -> str:
    """Type of an error and the first line of its text."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:_SHOWN]}".rstrip(": ")


def tell(job: Job, candidate: int | None) -> None:
    """Report what begins, so that a crash can be attributed to it."""
    send_message({"doing": job["id"], "candidate": candidate})
