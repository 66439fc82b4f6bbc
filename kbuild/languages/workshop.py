"""Where images are made: looked up, compiled by workers under the run's budget, kept.

One workshop serves all variants of a run. A unit that several want at once is compiled once; the
others wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kbuild.build.budget import Run
from kbuild.errors import BuildError, IncompleteError
from kbuild.languages.base import LANGUAGES, Function, Language
from kbuild.languages.bench import PATIENCE, Asked, Bench
from kbuild.languages.cache import ImageCache, Made
from kbuild.languages.compiled import Compiled
from kbuild.languages.described import arch_of, functions_of
from kbuild.languages.environment import Environments
from kbuild.languages.fitting import Note, Outcome, fitting
from kbuild.languages.inputs import Kernel, Snapshot, digest, snapshot
from kbuild.languages.kernels import Kernels, Share
from kbuild.languages.pool import Pool
from kbuild.languages.progress import Progress, Tell
from kbuild.languages.refusals import Refusal, label, of_units
from kbuild.languages.releases import device_facts
from kbuild.languages.shift import Shift
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.target import Target
from kbuild.languages.timesheet import Timesheet
from kbuild.languages.unit import Unit
from kbuild.languages.workplace import Workplace, workplace

T = TypeVar("T")


@dataclass(frozen=True)
class _Wanted:
    """One unit of a call."""

    unit: Unit
    key: str
    asked: Asked
    made: Future[Made | Refusal]
    is_ours: bool
    """Whether this call has to make it."""
    share: Share
    """In what it comes to, which may be what others come to."""


class Workshop:
    """Compiles for the variants of one run. Safe to use from several threads."""

    def __init__(
        self,
        run: Run,
        environments: Environments,
        language: Callable[[str], Language] = LANGUAGES.get,
        patience: float = PATIENCE,
    ) -> None:
        """Nothing is started or installed before it is needed.

        Args:
            run: the budget, and where things are kept.
            environments: where compilers come from.
            language: finds a language by its name.
            patience: seconds that one unit may take.
        """
        self._run, self._environments, self._language = run, environments, language
        self._cache = ImageCache(run.cache if run.keeps else None)
        self._kernels = Kernels(self._cache)
        self._folder = run.folder / "languages"
        self._pool = Pool(run.budget.jobs, self._folder / "workers")
        self._bench, self._sheet = Bench(run, self._pool, patience), Timesheet(str(run.log))
        self._lock = threading.Lock()
        self._places: dict[tuple[str, tuple[str, ...], str], Workplace] = {}
        self._made: dict[str, Future[Made | Refusal]] = {}
        self._described: dict[str, Future[Mapping[str, Any]]] = {}
        self._took: dict[str, float] = {}
        """Seconds, by key: what was compiled in this run."""
        self._said: set[str] = set()

    def prepare(self, kernel: Kernel) -> Workplace:
        """Install what the kernel's compiler needs, where it is not there.

        Raises:
            ToolchainError: the toolchain cannot be used or had.
        """
        key = (kernel.language, tuple(kernel.toolchain), kernel.flavour)
        with self._lock:
            known = self._places.get(key)
        if known is None:
            known = workplace(kernel, self._language(kernel.language), self._environments)
            with self._lock:
                self._places[key] = known
        return known

    def describe(
        self, kernel: Kernel, root: Path, targets: Sequence[Target] = ()
    ) -> Mapping[str, Function]:
        """The kernel functions of the first source.

        Args:
            kernel: whose sources.
            root: the project, which sources are named relative to.
            targets: what they are compiled for: a source may ask what it is.

        Raises:
            BuildError: they cannot be imported, or are others for another target.
            ToolchainError: see `prepare`.
        """
        place, sources = self.prepare(kernel), snapshot(kernel, root)
        devices = {arch_of(one): device_facts(one, kernel.flavour) for one in targets} or {"": {}}
        answers = {
            arch: self._answer(kernel, place, sources, device) for arch, device in devices.items()
        }
        return functions_of(kernel.name, answers)

    def _answer(
        self, kernel: Kernel, place: Workplace, sources: Snapshot, device: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """What the sources say where they are told of a device."""
        general = place.description_key(sources)
        with self._lock:
            known = self._described.get(general)
            future, is_ours = _claimed(self._described, digest([general, device]))
        if known is not None:
            return known.result()
        if is_ours:
            with _settled(future):
                future.set_result(self._description(kernel, place, sources, device))
        answer = future.result()
        if not answer.get("asked"):  # it holds for every device
            with self._lock:
                self._described[general] = future
        return answer

    def compile(
        self,
        kernel: Kernel,
        root: Path,
        wanted: Sequence[tuple[Unit, Bound]],
        tell: Tell = lambda *_: None,
        note: Note = lambda _: None,
    ) -> tuple[Compiled, ...]:
        """Every unit's image, in the order of `wanted`.

        Images that do not fit their target are left out, and `note` is told why; that is an error
        where nothing is left for a launch on a target with certain dtypes.

        Args:
            kernel: whose units.
            root: the project, which sources are named relative to.
            wanted: units, and what their functions' arguments are.
            tell: told of the progress.
            note: told what was left out.

        Raises:
            BuildError: units cannot be compiled, by their authors' lines, or nothing is left.
            IncompleteError: the run ended before all were made.
            ToolchainError: see `prepare`.
        """
        return fitting(kernel.name, self.outcomes(kernel, root, wanted, tell), note)

    def outcomes(
        self,
        kernel: Kernel,
        root: Path,
        wanted: Sequence[tuple[Unit, Bound]],
        tell: Tell = lambda *_: None,
        variant: str = "",
    ) -> tuple[Outcome, ...]:
        """What became of each unit, in the order of `wanted`; see `compile`, which judges it.

        The log of the run names `variant` as the one that they are made for.

        Raises:
            BuildError: units cannot be compiled, by their authors' lines.
            IncompleteError: the run ended before all were made.
            ToolchainError: see `prepare`.
        """
        place, sources = self.prepare(kernel), snapshot(kernel, root)
        units = [self._claim(place, sources, *one, variant) for one in wanted]
        self._make(units, tell)
        results = [(one.unit, one.made.result()) for one in units]
        refused = [(unit, made) for unit, made in results if isinstance(made, Refusal)]
        if refused:
            raise of_units(kernel.name, refused, len(units))
        took = [self._took.get(one.key) for one in units]
        return tuple(
            _outcome(unit, made, seconds)
            for (unit, made), seconds in zip(results, took, strict=True)
            if isinstance(made, Made)
        )

    def is_news(self, words: str) -> bool:
        """True the first time: what is the same for several variants is said once."""
        with self._lock:
            is_new = words not in self._said
            self._said.add(words)
        return is_new

    def close(self) -> None:
        """End all workers; what waits for them fails."""
        self._pool.close()

    def _claim(
        self, place: Workplace, sources: Snapshot, unit: Unit, bound: Bound, variant: str
    ) -> _Wanted:
        device = device_facts(unit.target, place.flavour)
        request = {**place.language.request(unit, bound), "device": device}
        key = place.key(unit, request, sources)
        with self._lock:
            future, is_ours = _claimed(self._made, key)
        found = self._cache.find(key) if is_ours else None
        if found is not None:
            future.set_result(found)
            self._sheet.found(unit, variant)
        asked = Asked(place, sources, self._folder / "sources", request, variant)
        share = Share(self._kernels, lambda kernel: place.kernel_key(unit.target, kernel))
        return _Wanted(unit, key, asked, future, is_ours and found is None, share)

    def _make(self, units: Sequence[_Wanted], tell: Tell) -> None:
        ours = [one for one in units if one.is_ours]
        progress = Progress(len(units), len(units) - len(ours), tell)

        def perform(one: _Wanted) -> None:
            with _settled(one.made):
                began = time.monotonic()
                made = self._made_of(one)
                self._took[one.key] = time.monotonic() - began
                one.share.settle(made).add_done_callback(lambda whole: self._finish(one, whole))
            progress.step(label(one.unit))

        try:
            Shift(ours, perform, self._run).work()
            wait([one.made for one in ours if one.share.is_elsewhere])
        finally:
            self._abandon(ours)

    def _made_of(self, one: _Wanted) -> Made | Refusal:
        try:
            return self._bench.compile(one.asked, one.unit, one.share.makes)
        except BaseException as error:
            one.share.fail(error)
            raise

    def _finish(self, one: _Wanted, whole: Future[Made | Refusal]) -> None:
        """Keep a unit's image, and hand it out."""
        error = whole.exception()
        with suppress(InvalidStateError):  # the run ended meanwhile
            if error is not None:
                one.made.set_exception(error)
                return
            made = whole.result()
            if isinstance(made, Made):
                self._cache.keep(one.key, made)
            one.made.set_result(made)

    def _abandon(self, units: Sequence[_Wanted]) -> None:
        """Let nobody wait for what the end of the run left."""
        for one in units:
            error = IncompleteError("the run ended before all was compiled")
            one.share.fail(error)
            if not one.made.done():
                with self._lock:
                    self._made.pop(one.key, None)
                one.made.set_exception(error)

    def _description(
        self, kernel: Kernel, place: Workplace, sources: Snapshot, device: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        general = place.description_key(sources)
        own = digest([general, device])
        found = self._cache.described(general) or self._cache.described(own)
        if found is not None:
            return found
        request = {"device": device}
        answer = self._bench.describe(Asked(place, sources, self._folder / "sources", request))
        if isinstance(answer, Refusal):
            message = f"kernel.{kernel.name}: {answer}"
            raise BuildError(message, excerpt=answer.excerpt, hint=answer.hint)
        self._cache.keep_described(own if answer.get("asked") else general, answer)
        return answer


def _claimed(known: dict[str, Future[T]], key: str) -> tuple[Future[T], bool]:
    """The future of that name, and whether the caller is the first to want it."""
    is_new = key not in known
    return known.setdefault(key, Future()), is_new


@contextmanager
def _settled(future: Future[T]) -> Iterator[None]:
    """Whoever waits for the future learns of a failure, too."""
    try:
        yield
    except BaseException as error:
        future.set_exception(error)
        raise


def _outcome(unit: Unit, made: Made, seconds: float | None) -> Outcome:
    if made.image is None:
        return Outcome(unit, None, made.reason)
    cached = seconds is None
    found = Compiled(unit, made.image, made.code, seconds=seconds or 0.0, cached=cached)
    return Outcome(unit, found)
