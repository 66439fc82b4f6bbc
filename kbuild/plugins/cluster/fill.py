"""Fills this machine's cache from a cluster, and verifies every entry that comes back.

A worker is believed nothing that can be looked up here: the key has to be one that was asked for,
every file of the record has to be here with the recorded content, and the object has to have the
recorded digest. The first object of a build, and a share of the others, are compiled again on this
machine and compared byte by byte.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.build.compile import CompileTree
from kbuild.build.unit.cache import ENTRY_PARTS, OTHER_FILES
from kbuild.dsl.image_cache import CompileResult, ImageCache, parse_image_entry, unit_label
from kbuild.pipeline.executors import BuildRequest
from kbuild.plugins.cluster.assignments import UnitResult, WorkUnit
from kbuild.plugins.cluster.jobs import (
    GENERATED_FOLDER,
    IMAGE_SUFFIXES,
    CompileJob,
    ImageJob,
    archive_files,
    archive_sources,
    job_digest,
)
from kbuild.plugins.cluster.objects import ObjectUnit, object_units
from kbuild.system.budget import Run
from kbuild.system.errors import DamagedFileError
from kbuild.system.processes import Runner
from kbuild.system.progress import ESTIMATED_FROM, Clock, left_text
from kbuild.system.unit_settings import RUN_VARIABLE, LogValue, append_record

if TYPE_CHECKING:
    from kbuild.build.ninja import ProgressCallback
    from kbuild.dsl.aot_compiler import ImageRequest, UnitProgressCallback
    from kbuild.dsl.compile_environment import CompilableKernel, SourceSnapshot
    from kbuild.plugins.cluster.executor import ClusterExecutor

SAMPLE_SHARE = 0.02
_SAMPLERS = 2
"""Objects that are compiled again at a time."""
_PAUSE = 0.2
_BATCH = 8
"""Images that a worker makes with one start of their compiler."""


class RemainingTime:
    """Estimate of the remaining time, from the durations of the units that are done."""

    def __init__(self, units: Sequence[WorkUnit], clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._open = {unit.key: unit.seconds or 1.0 for unit in units}
        self._began: float | None = None
        self._done = 0.0

    def text_after(self, unit: WorkUnit) -> str:
        """Estimate of the remaining time after a unit; empty before a third of the work is done.

        The time until the first is left out: it is that of toolchains and configuration.
        """
        seconds = self._open.pop(unit.key, 0.0)
        if self._began is None:
            self._began = self._clock()
            return ""
        self._done += seconds
        rest = sum(self._open.values())
        if self._done < (self._done + rest) * ESTIMATED_FROM:
            return ""
        return left_text((self._clock() - self._began) * rest / self._done)


class ClusterFiller:
    """See `ObjectFiller`. One serves all variants of a run; safe to use from several threads."""

    def __init__(
        self,
        executor: ClusterExecutor,
        run: Run,
        runner: Runner,
        request: BuildRequest,
        say: Callable[[str], None],
        *,
        share: float = SAMPLE_SHARE,
    ) -> None:
        """`share` of the objects are compiled again on this machine."""
        self._executor, self._run, self._runner = executor, run, runner
        self._request, self._say, self._share = request, say, share
        self._lock = threading.Lock()
        self._claimed: set[str] = set()
        """Keys of objects that a variant has asked for: others wait for them."""
        self._archive = ""
        self._has_sample = False
        self._image_samples: dict[str, tuple[str, bytes]] = {}
        """Key -> worker and code of images that this machine compiles as well, to compare them."""
        self._wrong: set[str] = set()
        self._kept: dict[str, list[tuple[str, Callable[[], None]]]] = {}
        """Worker -> its variants, and functions that remove the entries kept from it."""
        self._samples = run.folder / "samples"
        self._samples.mkdir(exist_ok=True)
        self._samplers = ThreadPoolExecutor(_SAMPLERS, thread_name_prefix="sample")

    def fill_objects(self, tree: CompileTree, tell: ProgressCallback) -> None:
        """See `ObjectFiller.fill_objects`."""
        try:
            self._fill(tree, tell)
        except Exception as error:  # noqa: BLE001 - this machine can build without the cluster
            self._say(f"{tree.plan.variant}: the cluster is not used: {error}")

    def fill_images(
        self,
        kernel: CompilableKernel,
        sources: SourceSnapshot,
        wanted: Mapping[str, ImageRequest],
        tell: UnitProgressCallback,
    ) -> None:
        """See `ImageFiller.fill_images`."""
        facts = kernel.name, kernel.language, tuple(kernel.toolchain), kernel.flavour
        data = ImageJob(*facts, sources.texts, wanted).to_bytes()
        job, keys = job_digest(data), list(wanted)
        batches = [keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH)]
        work = [
            # How long an image takes is not known, so the number of images stands for the time.
            WorkUnit(" ".join(batch), unit_label(wanted[batch[0]].unit), job, float(len(batch)))
            for batch in batches
        ]
        done, remaining = 0, RemainingTime(work)

        def deliver(result: UnitResult) -> None:
            nonlocal done
            batch = result.unit.key.split()
            done += len(batch)
            tell(done, len(keys), self._progress(remaining, result.unit))
            if result.failure:
                reason = result.failure.splitlines()[0]
                self._say(f"{result.unit.label} failed on worker {result.worker}: {reason}")
                return
            self._log(result.unit.label, "", kernel.language, result, image=True)
            for key in batch:
                self._accept_image(key, wanted[key], result)

        try:
            self._executor.publish(job, data)
            with self._lent_token():
                self._executor.execute(work, deliver)
        except Exception as error:  # noqa: BLE001 - this machine can build without the cluster
            self._say(f"kernel.{kernel.name}: the cluster is not used: {error}")

    def compare_image(self, key: str, result: CompileResult) -> None:
        """See `ImageFiller.compare_image`."""
        worker, code = self._image_samples.pop(key, ("", b""))
        if worker and code != result.code:
            reason = "this machine makes other bytes of an image"
            self._refuse(worker, reason)

    def _accept_image(self, key: str, wanted: ImageRequest, result: UnitResult) -> None:
        """Keep an image whose entry is whole and for the target that was asked for."""
        record, code = (result.outputs.get(f"{key}{suffix}") for suffix in IMAGE_SUFFIXES)
        if record is None or code is None:
            return
        try:
            image = parse_image_entry(record, code, name=result.unit.label)
        except DamagedFileError as error:
            self._refuse(result.worker, error.message)
            return
        if image.image is not None and image.image.target != wanted.unit.target:
            self._refuse(result.worker, f"{result.unit.label}: it is for another target")
        # Unpredictable, so that a worker cannot know which of its results are compared.
        elif secrets.randbelow(10**6) < self._share * 10**6:
            self._image_samples[key] = result.worker, code
        else:
            cache = ImageCache(self._run.cache)
            cache.keep(key, image)
            self._remember(result.worker, "", partial(cache.remove, key))

    def close(self) -> None:
        """Stop comparing samples, and close the executor."""
        self._samplers.shutdown(wait=False, cancel_futures=True)
        self._executor.close()

    def _fill(self, tree: CompileTree, tell: ProgressCallback) -> None:
        asked: set[str] = set()
        while not self._run.is_ending:
            missing = [
                unit for unit in object_units(tree) if unit.key not in asked and not unit.is_made
            ]
            if not missing:
                return
            units, is_waiting = self._claim(missing)
            with self._lent_token():
                if units:
                    # What comes back damaged is not asked for again: this machine compiles it.
                    asked |= {unit.key for unit in units}
                    try:
                        self._execute(tree, units, tell)
                    finally:
                        with self._lock:
                            # After an error too: other variants wait for these keys.
                            self._claimed -= {unit.key for unit in units}
                # Other variants have asked for the rest: it comes into the cache, or becomes free.
                elif is_waiting:
                    self._run.stopped.wait(_PAUSE)

    def _claim(self, missing: Sequence[ObjectUnit]) -> tuple[list[ObjectUnit], bool]:
        """The units that no other variant has asked for, and whether there are others."""
        with self._lock:
            free = {unit.key: unit for unit in missing if unit.key not in self._claimed}
            self._claimed |= free.keys()
            return list(free.values()), len(free) < len(missing)

    def _execute(
        self, tree: CompileTree, units: Sequence[ObjectUnit], tell: ProgressCallback
    ) -> None:
        job = self._publish(tree)
        by_key = {unit.key: unit for unit in units}
        work = [
            WorkUnit(unit.key, unit.label, job, unit.expected_seconds, unit.expected_resources)
            for unit in units
        ]
        # While workers are at them, so that nothing waits for a sample in the end.
        samples = {
            unit.key: self._samplers.submit(self._compile, unit)
            for unit in units
            if self._is_sample()
        }
        compared: list[Future[None]] = []
        done, remaining = 0, RemainingTime(work)

        def deliver(result: UnitResult) -> None:
            nonlocal done
            done += 1
            tell(done, len(units), self._progress(remaining, result.unit))
            unit = by_key[result.unit.key]
            if result.failure:
                reason = result.failure.splitlines()[-1]
                self._say(f"{unit.label} failed on worker {result.worker}: {reason}")
                return
            self._log(unit.label, tree.plan.variant, unit.command.language, result)
            if unit.key in samples:
                compared.append(self._samplers.submit(self._compare, unit, result, samples))
            else:
                self._accept(unit, result)

        tell(0, len(work), "given to the cluster")
        self._executor.execute(work, deliver)
        for comparison in compared:
            comparison.result()

    def _progress(self, remaining: RemainingTime, unit: WorkUnit) -> str:
        parts = remaining.text_after(unit), self._executor.load, unit.label
        return ", ".join(filter(None, parts))

    def _publish(self, tree: CompileTree) -> str:
        """The name of the variant's job, whose parts workers can fetch from now on."""
        with self._lock:
            if not self._archive:
                archive = archive_sources(self._request.root, self._request.plans)
                self._executor.publish(archive.digest, archive.data)
                self._archive = archive.digest
        request, plan = self._request, self._request.plans[tree.plan.variant]
        files = {f"{GENERATED_FOLDER}/{path}": data for path, data in tree.generated.items()}
        generated = ""
        if files:
            archive = archive_files(files)
            self._executor.publish(archive.digest, archive.data)
            generated = archive.digest
        parsed = CompileJob(plan, request.toolchain, self._archive, generated)
        data = parsed.to_bytes()
        job = job_digest(data)
        self._executor.publish(job, data)
        return job

    def _accept(self, unit: ObjectUnit, result: UnitResult) -> None:
        """Keep a worker's object if its entry is what its key says."""
        fresh = next(object_units(unit.tree_of_one), None)
        if fresh is None or fresh.key != unit.key:  # its source was edited meanwhile
            return
        parts = result.outputs
        reason = fresh.cache.accept(*(parts[name] for name in ENTRY_PARTS))
        # No wrong result, as in `_refuse`: the worker's compiler or headers differ from those here.
        if reason == OTHER_FILES:
            self._executor.exclude(result.worker, f"{unit.label}: {reason}")
            return
        if reason:
            self._refuse(result.worker, f"{unit.label}: {reason}")
            return
        fresh.remember_cost(parts.get("cost", b""))
        self._remember(result.worker, unit.tree.plan.variant, fresh.cache.remove)

    def _remember(self, worker: str, variant: str, remove: Callable[[], None]) -> None:
        """Remember how to remove an entry that was kept, or remove it if its worker was refused."""
        with self._lock:
            self._kept.setdefault(worker, []).append((variant, remove))
            # Another thread may have refused the worker while this entry was being kept.
            is_wrong = worker in self._wrong
        if is_wrong:
            self._forget(worker)

    def _log(
        self, label: str, variant: str, language: str, result: UnitResult, *, image: bool = False
    ) -> None:
        """Log a unit of a worker for the report, by this machine's clock."""
        end = time.time()
        record: dict[str, LogValue] = {
            "unit": label,
            "variant": variant,
            "language": language,
            "start": end - result.seconds,
            "end": end,
            "status": 0,
            "cache": "miss",
            "image": image,
            "worker": result.worker,
        }
        with suppress(OSError):  # the report of a build is not worth the build
            append_record(str(self._run.log), record)

    def _is_sample(self) -> bool:
        with self._lock:
            is_first, self._has_sample = not self._has_sample, True
        return is_first or secrets.randbelow(10**6) < self._share * 10**6

    def _compile(self, unit: ObjectUnit) -> bool:
        """Compile a sample on this machine as well; False if that gives no object."""
        server = self._run.server
        if server is not None and not server.acquire(lambda: self._run.is_ending):
            return False
        try:
            # With a log of its own: ninja starts the launcher again, and the report counts that.
            environ = {**unit.tree.environ, RUN_VARIABLE: str(self._samples)}
            return self._runner.run(unit.argv, cwd=unit.tree.tree, env=environ).ok
        finally:
            if server is not None:
                server.release()

    def _compare(
        self, unit: ObjectUnit, result: UnitResult, samples: Mapping[str, Future[bool]]
    ) -> None:
        """See that a worker's object has the bytes of the one that was compiled here."""
        is_compiled = samples[unit.key].result()
        with suppress(OSError):
            if is_compiled and Path(unit.object).read_bytes() != result.outputs["object"]:
                self._refuse(result.worker, f"{unit.label}: this machine makes other bytes of it")

    def _refuse(self, worker: str, reason: str) -> None:
        """Exclude a worker that returned something wrong, and remove all of its results."""
        with self._lock:
            self._wrong.add(worker)
        self._executor.exclude(worker, reason)
        self._forget(worker)

    def _forget(self, worker: str) -> None:
        """Remove the entries that came from a worker, and name variants that may contain some."""
        with self._lock:
            entries = self._kept.pop(worker, [])
        for _, remove in entries:
            remove()
        for variant in sorted({variant for variant, _ in entries}):
            who = f"{variant}: " * bool(variant)
            self._say(f"{who}what worker {worker} made is removed from the cache")

    @contextmanager
    def _lent_token(self) -> Iterator[None]:
        """Let other variants compile while this one waits for the cluster."""
        server = self._run.server
        if server is not None:
            server.release()
        try:
            yield
        finally:
            if server is not None:
                server.acquire(lambda: self._run.is_ending)
