"""GPUs that exist in numbers only: noise, clocks that rise, fall and drift, stragglers, crashes.

`SimulatedHost` is a `kbuild.dsl.tune.workers.ProbeTransport` in virtual time; its workers run the
real races of `probes.race`.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbuild.dsl.tune.probes.race import Race, RaceRules

Times = Mapping[int, float]


@dataclass
class SimulatedGpu:
    """A stopwatch for candidates whose times at full clock are known."""

    seed: int = 1
    speed: float = 1.0
    noise: float = 0.01
    """Of one call."""
    process_noise: float = 0.0
    """Of a candidate in one process: where its tensors lie."""
    cold_share: float = 0.0
    """How much slower it is when it begins; half of that after `cold_s` of work."""
    cold_s: float = 0.02
    throttle_share: float = 0.0
    """How much slower it is when it is hot."""
    throttle_s: float = 0.5
    """Work after which it is hot."""
    submit_us: float = 0.0
    """What one call costs besides, in seconds of the race."""
    now: float = 0.0
    spent: dict[int, float] = field(default_factory=dict)
    turns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - the same noise each time
        self.times: Times = {}
        self.current = -1
        self.heat = 0.0
        self.bias: dict[int, float] = {}

    def begin_process(self) -> None:
        """Another process: cold, and with other addresses."""
        self.heat, self.bias = 0.0, {}

    def prepare(self, candidate: int) -> None:
        """Make the next calls those of a candidate."""
        self.current = candidate
        self.turns.append(candidate)

    def time(self, call: Callable[[], object], count: int) -> list[float]:
        """See `race.Stopwatch`."""
        samples = []
        for _ in range(count):
            call()
            bias = self.bias.setdefault(self.current, self.random.gauss(0, self.process_noise))
            cold = self.cold_share * 0.5 ** (self.heat / self.cold_s)
            hot = self.throttle_share * min(self.heat / self.throttle_s, 1.0)
            us = self.times[self.current] * (1 + bias) * (1 + cold + hot) / self.speed
            us *= 1 + abs(self.random.gauss(0, self.noise))
            self.now += (us + self.submit_us) / 1e6
            self.heat += us / 1e6
            self.spent[self.current] = self.spent.get(self.current, 0.0) + us
            samples.append(us)
        return samples

    def race(self, times: Times, keep: int | None = None, **rules: float) -> Any:
        """A race between candidates with these times."""
        self.times = times
        race = Race(self, self.prepare, lambda: None, lambda: self.now, RaceRules(**rules))
        return race.perform(list(times), keep)


@dataclass
class SimulatedWorker:
    """A process on one of the GPUs."""

    name: str
    device: str
    free_at: float


class SimulatedHost:
    """Workers in virtual time; `now` is in seconds."""

    interpreter = "`python`"

    def __init__(
        self,
        gpus: Mapping[str, SimulatedGpu],
        times: Callable[[Mapping[str, Any]], Times],
        start_s: float = 0.5,
        setup_s: float = 0.0,
    ) -> None:
        """`times(job)` gives the candidates' times; `setup_s` is the time before each race."""
        self.gpus, self.times, self.start_s, self.setup_s = gpus, times, start_s, setup_s
        self.now = 0.0
        self.deaths: list[tuple[str, int]] = []
        """(job, exit code): the next worker that gets the job dies in the middle."""
        self.death_s = 0.1
        self.dealt: list[tuple[str, str, str, int]] = []
        """Worker, device, job and repetition, in the order in which they were handed out."""
        self.busy_s = dict.fromkeys(gpus, 0.0)
        self.workers: dict[str, SimulatedWorker] = {}
        self._events: list[tuple[float, int, dict[str, Any]]] = []
        self._numbers = itertools.count(1)

    def start(self, settings: Mapping[str, Any]) -> str:
        """See `ProbeTransport.start`."""
        name = f"w{len(self.workers) + 1}"
        self.gpus[settings["device"]].begin_process()
        self.workers[name] = SimulatedWorker(name, settings["device"], self.now + self.start_s)
        return name

    def send(self, command: Mapping[str, Any]) -> None:
        """See `ProbeTransport.send`."""
        worker = self.workers[command.get("to") or command["stop"]]
        if "stop" in command:
            self._say(max(self.now, worker.free_at), {"ended": worker.name, "code": 0})
            return
        job = command["job"]
        self.dealt.append((worker.name, worker.device, job["id"], job["repetition"]))
        begins = max(self.now, worker.free_at)
        about = {"worker": worker.name}
        self._say(begins, {**about, "doing": job["id"], "candidate": job["candidates"][-1]})
        death = next((entry for entry in self.deaths if entry[0] == job["id"]), None)
        if death is not None:
            self.deaths.remove(death)
            self._say(begins + self.death_s, {"ended": worker.name, "code": death[1]})
            return
        record = self.measured(self.gpus[worker.device], job)
        worker.free_at = begins + record["seconds"]
        self.busy_s[worker.device] += record["seconds"]
        done = {"done": job["id"], "repetition": job["repetition"]}
        self._say(worker.free_at, {**about, **done, **record})

    def measured(self, gpu: SimulatedGpu, job: Mapping[str, Any]) -> dict[str, Any]:
        """What a worker says of a job, with the seconds that it needs."""
        times = {at: us for at, us in self.times(job).items() if at in job["candidates"]}
        before = gpu.now
        runners = gpu.race(times, min(times)) if times else {}
        return {
            "times": {str(at): runner.median for at, runner in runners.items()},
            "alive": [at for at, runner in runners.items() if not runner.is_out],
            "default": min(times, default=None),
            "seconds": gpu.now - before + self.setup_s / gpu.speed,
        }

    def receive(self) -> Mapping[str, Any]:
        """See `ProbeTransport.receive`; virtual time goes on."""
        self.now, _, answer = heapq.heappop(self._events)
        return answer

    def _say(self, when: float, answer: dict[str, Any]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), answer))
