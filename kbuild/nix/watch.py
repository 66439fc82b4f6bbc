"""Nix's log turned into progress: what is built, fetched and copied, and what failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.errors import BuildError
from kbuild.nix.builds import Build
from kbuild.nix.events import (
    BUILD,
    BUILDS,
    COPY,
    LOG_LINE,
    PHASE,
    PROGRESS,
    SUBSTITUTE,
    Event,
    name_of,
    read_event,
)
from kbuild.progress import Clock, Progress
from kbuild.ui import Ui

_DERIVATION = re.compile(r"'(/nix/store/[^'\s]+\.drv)'")
_BUILDER = re.compile(r"builder(?: for '[^']+')? (failed [^\n]*?)[;.]*$", re.MULTILINE)
_ELSEWHERE = re.compile(
    r"build of '[^']+' on '(?P<machine>[^']+)' failed: (?:error:)?\s*(?P<why>.+)"
)
_FOLLOWS = re.compile(r"dependenc(?:y|ies) (?:of|failed)|^(?:error: *)?build of ")
"""Messages about what failed because something else did."""
_COUNTS = 4
_STEP = re.compile(r"\S+: (?P<count>\d+(?:/\d+)?) after \d+ s, (?P<what>.*)")
"""How a kbuild in the sandbox tells of its progress; see `kbuild.progress.Lines`."""


@dataclass
class Watch:
    """Listens to one run of Nix."""

    labels: Callable[[str], str]
    """What a derivation is called for the user: a variant, or its own name."""
    logs: Path
    """Folder that gets a file for every derivation that is built."""
    ui: Ui
    progress: Progress
    prints: bool = False
    """Whether what builders say is shown."""
    clock: Clock = time.monotonic
    builds: dict[str, Build] = field(default_factory=dict)
    """By derivation."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Derivation -> how its own builder failed."""
    errors: list[str] = field(default_factory=list)
    """What Nix says at the end."""
    _running: dict[int, Build] = field(default_factory=dict)
    _counts: tuple[int, int] = (0, 0)
    _label: str = ""
    _said: set[str] = field(default_factory=set)
    """Variants that are known to be built: several derivations may be for one."""
    _all: int = 0
    """The activity of all builds together."""

    def listen(self, line: str) -> None:
        """One line of Nix's output."""
        event = read_event(line)
        if event is None:
            self._foreign(line)
        elif event.action == "start":
            self._start(event)
        elif event.action == "stop":
            self._stop(event.id)
        elif event.action == "result":
            self._result(event)
        elif event.level == 0:
            self._failed(event)

    def close(self) -> None:
        """Nix has ended."""
        for build in self.builds.values():
            build.end(self.clock())
            build.close()

    def failures(self) -> Iterator[tuple[str, BuildError]]:
        """Derivation and error, of those that failed by themselves."""
        for derivation, reason in self.reasons.items():
            build = self.builds.get(derivation) or Build(derivation)
            yield derivation, build.failure(self.labels(derivation), reason)

    def _start(self, event: Event) -> None:
        if event.type == BUILDS:
            self._all = self._all or event.id  # another machine's are told of below it
        elif event.type == BUILD and event.fields:
            self._begin(event.id, *map(str, event.fields[:2]))
        elif event.type in {SUBSTITUTE, COPY} and event.fields:
            path, *places = map(str, event.fields)
            word = "fetching" if event.type == SUBSTITUTE else "copying"
            self._tell(f"{word} {name_of(path)}")
            self.ui.detail(f"{word} {name_of(path)} {' -> '.join(filter(None, places))}".rstrip())

    def _begin(self, number: int, derivation: str, machine: str = "") -> None:
        if derivation in self.builds:  # another machine tells of it as well
            self._running[number] = self.builds[derivation]
            return
        build = Build(derivation, machine, self.clock())
        build.open(self.logs)
        self.builds[derivation] = self._running[number] = build
        label, place = self.labels(derivation), f" on {machine}" if machine else ""
        is_news = label != build.name and label not in self._said
        self._said.add(label)
        if is_news:
            self.ui.say(f"{label}: building{place}")
        else:
            self.ui.detail(f"{build.name}: building{place}")
        self._tell(f"{label}: building")

    def _stop(self, number: int) -> None:
        build = self._running.pop(number, None)
        if build is not None and build not in self._running.values():
            build.end(self.clock())
            build.close()

    def _result(self, event: Event) -> None:
        build = self._running.get(event.id)
        if event.type == PROGRESS and event.id == self._all and len(event.fields) == _COUNTS:
            self._count(event)
        elif build is not None and event.type == LOG_LINE and event.fields:
            self._line(build, str(event.fields[0]))
        elif build is not None and event.type == PHASE and event.fields:
            self._tell(f"{self.labels(build.derivation)}: {event.fields[0]}")

    def _line(self, build: Build, line: str) -> None:
        build.take(line)
        label = self.labels(build.derivation)
        if self.prints:
            self.ui.say(f"{label}> {line}")
        step = _STEP.fullmatch(line)
        if step is not None:
            self._tell(f"{label}: {step['what']} ({step['count']})")

    def _count(self, event: Event) -> None:
        """Fields: how many are done, expected, running, and failed."""
        done, total, _, failed = (int(count) for count in event.fields)
        over, before = done + failed, self._counts[0]
        self._counts = (over, max(total, over))
        active = [build for build in self._running.values() if build.ended is None]
        if over > before and len(active) == 1:
            active[0].end(self.clock())  # Nix 2.8 tells of the end of each only at the end of all
        self._tell("")

    def _tell(self, label: str) -> None:
        if label:
            self._label = label
        self.progress.update(*self._counts, self._label)

    def _failed(self, event: Event) -> None:
        text = event.text.removeprefix("error:").strip()
        self.errors.append(event.raw.strip() or text)
        found, elsewhere = _DERIVATION.search(text), _ELSEWHERE.match(text)
        if found is not None and elsewhere is not None:
            self.reasons.setdefault(found[1], f"on {elsewhere['machine']}: {elsewhere['why']}")
        elif found is not None and not _FOLLOWS.search(text):
            builder = _BUILDER.search(text)
            self.reasons.setdefault(found[1], f"its builder {builder[1]}" if builder else text)

    def _foreign(self, line: str) -> None:
        """What programs say that Nix starts, and errors of its command line."""
        if line.startswith("error:"):
            self.errors.append(line.removeprefix("error:").strip())
        elif line.strip():
            self.ui.detail(line)
