"""Runs in the user's interpreter: lists devices, and measures a variant's candidates.

Candidates take turns, so that clock drift affects all of them.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

HANG_TIMEOUT_S = 180.0
"""A process that says nothing for so long hangs, and is ended."""
DEFAULT_CHOICE = -1
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
        devices = importlib.import_module("kbuild.tune.probes.devices").devices()
        say({"torch": str(torch.__version__), "devices": devices})
    else:
        measure([json.loads(line) for line in sys.stdin if line.strip()])


def measure(lines: list[dict[str, Any]]) -> None:
    """Load the variant that the first line names, and measure the jobs of the others."""
    settings, *jobs = lines
    ends = time.monotonic() + float(settings["seconds"])
    try:
        sys.path.insert(0, settings["root"])
        bench = BenchmarkServer(settings)
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
class BenchmarkServer:
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
                choose(launch, DEFAULT_CHOICE)

    def _measured(self, job: Job, choose: Callable[[int, int], object]) -> dict[str, Any]:
        values = self._inputs(job)
        checked = _CandidateCheck(self, job, values, self._expected(job, values))
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

        rules = RaceRules(**job.get("rules", {}))
        race = Race(self.stopwatch, prepare, call, time.monotonic, rules)
        runners = race.perform(checked.right, checked.default) if checked.right else {}
        return {
            "times": {str(index): round(runner.median, 3) for index, runner in runners.items()},
            "runs": {str(index): len(runner.samples) for index, runner in runners.items()},
            "failed": checked.failed,
            "wrong": checked.wrong,
            "default": checked.default,
        }

    def call(self, job: Job, values: list[Any]) -> Any:
        """One call of the op."""
        pairs = self.tensors.joined(job["arguments"], values)
        plain = [value for argument, value in pairs if not argument["keyword"]]
        named = {argument["name"]: value for argument, value in pairs if argument["keyword"]}
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
            return list(self.tensors.make_inputs(job["arguments"], device))
        inputs = function(job["inputs"])(**job["facts"], device=device)
        values = self.tensors.make_inputs(job["arguments"], device)
        pairs = zip(job["arguments"], values, strict=True)
        return [self.tensors.chosen(inputs, argument, value) for argument, value in pairs]

    def _expected(self, job: Job, values: list[Any]) -> list[Any] | None:
        if not job["reference"]:
            return None
        own = self.tensors.copies(values, job["arguments"])
        pairs = self.tensors.joined(job["arguments"], own)
        named = {argument["name"]: value for argument, value in pairs}
        returned = function(job["reference"])(**named)
        self.synchronize()
        return list(self.tensors.results(returned, [], []))


@dataclass
class _CandidateCheck:
    """Which candidates run, and give what they should."""

    bench: BenchmarkServer
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
        results = tensors.results(returned, own, job["arguments"])
        if self.expected is None:
            self.expected = results
        difference = tensors.difference(results, self.expected, job["rtol"], job["atol"])
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
    sys.modules[namespace] = module
    spec.loader.exec_module(module)


def function(written: str) -> Callable[..., Any]:
    """The function that `module:function` names, looked for from the project's folder."""
    module, _, name = written.partition(":")
    target: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return target


def first_words(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:_SHOWN]}".rstrip(": ")


def tell(job: Job, candidate: int | None) -> None:
    """Say what begins: it may be the last that is heard of this process."""
    say({"doing": job["id"], "candidate": candidate})


def say(document: dict[str, Any]) -> None:
    """One line of JSON, at once."""
    faulthandler.dump_traceback_later(HANG_TIMEOUT_S, exit=True)
    sys.stdout.write("\n" + json.dumps(document) + "\n")
    sys.stdout.flush()


class Stopwatch(Protocol):
    """Measures calls on one device."""

    def time(self, call: Callable[[], object], count: int) -> Sequence[float]:
        """Microseconds of each of `count` calls, each with cold caches."""


@dataclass(frozen=True)
class RaceRules:
    """How long is measured, and when a candidate is given up."""

    warm: int = 2
    """Calls that are not counted, of each candidate."""
    first: int = 3
    """Calls after which a candidate may be hopeless."""
    slice_us: float = 4000.0
    """Time of one turn, roughly."""
    turn: int = 20
    """Most calls of one turn."""
    enough: int = 24
    """Fewest calls of a candidate that may win."""
    rounds: int = 30
    hopeless: float = 1.3
    """Given up when its fastest call takes this much longer than the best one's median does."""
    beaten: float = 1.05
    """The same, once `enough` calls were measured."""
    precision: float = 0.004
    """Wanted standard error of the best median, relative to it."""
    seconds: float = 30.0
    """Longest time for one race."""


@dataclass
class RaceCandidate:
    """One candidate of a race."""

    samples: list[float] = field(default_factory=list)
    is_out: bool = False

    @property
    def median(self) -> float:
        """Microseconds."""
        return statistics.median(self.samples)

    @property
    def error(self) -> float:
        """The median's standard error, relative to it; estimated from the absolute deviations."""
        middle = self.median
        deviation = statistics.median(abs(sample - middle) for sample in self.samples)
        # 1.4826: from the median deviation to sigma; 1.2533: from the mean's error to the median's.
        return 1.4826 * 1.2533 * deviation / max(middle, 1e-9) / math.sqrt(len(self.samples))


@dataclass(frozen=True)
class Race:
    """One race; `perform` runs it."""

    stopwatch: Stopwatch
    prepare: Callable[[int], None]
    """Makes the next calls run a candidate."""
    call: Callable[[], object]
    clock: Callable[[], float]
    """Seconds."""
    rules: RaceRules = RaceRules()

    def perform(
        self, candidates: Sequence[int], keep: int | None = None
    ) -> Mapping[int, RaceCandidate]:
        """Measure until it is clear which is the fastest; `keep` is measured to the end anyway."""
        rules, ends = self.rules, self.clock() + self.rules.seconds
        runners = {candidate: RaceCandidate() for candidate in candidates}
        for candidate, runner in runners.items():
            self._run(candidate, rules.warm)
            runner.samples += self._run(candidate, rules.first)
        for number in range(rules.rounds):
            alive = self._survivors(runners, keep)
            if self._is_decided(runners, alive) or self.clock() > ends:
                break
            at = number % len(alive)
            for candidate in (*alive[at:], *alive[:at]):
                runner = runners[candidate]
                count = round(rules.slice_us / max(runner.median, 0.1))
                runner.samples += self._run(candidate, min(max(count, 1), rules.turn))
        self._survivors(runners, keep)
        return runners

    def _run(self, candidate: int, count: int) -> Sequence[float]:
        self.prepare(candidate)
        return self.stopwatch.time(self.call, count)

    def _survivors(self, runners: Mapping[int, RaceCandidate], keep: int | None) -> list[int]:
        alive = [runner for runner in runners.values() if not runner.is_out]
        best = min((runner.median for runner in alive), default=0.0)
        for candidate, runner in runners.items():
            is_known = len(runner.samples) >= self.rules.enough
            limit = self.rules.beaten if is_known else self.rules.hopeless
            if candidate != keep and min(runner.samples) > limit * best:
                runner.is_out = True
        return [candidate for candidate, runner in runners.items() if not runner.is_out]

    def _is_decided(self, runners: Mapping[int, RaceCandidate], alive: Sequence[int]) -> bool:
        if any(len(runners[candidate].samples) < self.rules.enough for candidate in alive):
            return False
        best = min(alive, key=lambda candidate: runners[candidate].median)
        return len(alive) == 1 or runners[best].error <= self.rules.precision
