"""`kbuild check --executor`: variants are loaded on workers whose interpreter they fit.

A worker gets the questions that the checks ask of an interpreter, with the files that they are
about, and answers with what its probes said. The checks then run here as always.

Such an answer holds for the worker's interpreter alone, so no cache of this machine keeps it: the
worker does, which sees when its interpreter changes. Here it is used by one command, for exactly
the bytes that were sent, and names the worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbuild.checks.base import Check, Output, findings_of
from kbuild.checks.probe_cache import ProbeCache, ProbeQuestion
from kbuild.checks.probe_process import ProbeAnswer
from kbuild.plugins.cluster.connect import require_distributed, variant_executor
from kbuild.plugins.cluster.tests import VariantRuns
from kbuild.project.variant import System
from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.services import Services
from kbuild.system.unit_executor import UnitResult, WorkUnit
from kbuild.system.untrusted import reading


@dataclass(frozen=True)
class QuestionRecorder(ProbeCache):
    """Notes what checks ask an interpreter, and starts nothing."""

    python: Path | None = None
    """The interpreter; questions to others are left out."""
    questions: list[ProbeQuestion] = field(default_factory=list)

    def ask(
        self,
        runner: Runner,
        python: Path,
        probe: str,
        *arguments: str | Path,
        general: tuple[str, ...] = (),
        system: System | None = None,
    ) -> ProbeAnswer:
        """An answer after which checks ask the next question."""
        del runner, system
        if python == self.python:
            self.questions.append(ProbeQuestion(python, probe, arguments, general))
        return ProbeAnswer("loaded", "")


def questions_of(output: Output, checks: Iterable[Check]) -> list[ProbeQuestion]:
    """The questions of the checks to `output.python`, as far as the output's files can be read."""
    recorder = QuestionRecorder(python=output.python)
    for check in checks:
        if check.asks_probes and output.alone is None:
            findings_of(check, replace(output, probe_cache=recorder))
    return [question for question in recorder.questions if question.subject is not None]


@dataclass(frozen=True)
class WorkerVerdict:
    """One answer of a worker."""

    answer: ProbeAnswer
    worker: str
    python: str
    """Version of Python there."""
    torch: str
    """Version of Torch there."""
    remembered: bool = False
    """True when the worker had loaded exactly this before."""

    def to_json(self) -> dict[str, Any]:
        """The worker that gave the answer, as a JSON object."""
        return {
            "worker": self.worker,
            "python": self.python,
            "torch": self.torch,
            "remembered": self.remembered,
        }


@dataclass(frozen=True)
class WorkerVerdicts(ProbeCache):
    """Asks this machine's interpreters what no worker has answered."""

    python: Path | None = None
    """The interpreter in whose stead workers were asked."""
    verdicts: Mapping[str, WorkerVerdict] = field(default_factory=dict)
    """Verdicts by `ProbeQuestion.subject`."""
    used: dict[tuple[str, Path], WorkerVerdict] = field(default_factory=dict, compare=False)
    """Verdicts that were used, by probe and subject."""

    def ask(
        self,
        runner: Runner,
        python: Path,
        probe: str,
        *arguments: str | Path,
        general: tuple[str, ...] = (),
        system: System | None = None,
    ) -> ProbeAnswer:
        """See `ProbeCache.ask`."""
        if python == self.python and self.verdicts:
            subject = ProbeQuestion(python, probe, arguments).subject
            verdict = self.verdicts.get(subject or "")
            if verdict is not None:
                self.used[probe, Path(arguments[0])] = verdict
                return verdict.answer
        return super().ask(runner, python, probe, *arguments, general=general, system=system)

    def cached_facts(self, probe: str, subject: Path) -> dict[str, Any]:
        """See `ProbeCache.cached_facts`; `worker` names the worker that answered."""
        verdict = self.used.get((probe, subject))
        worker = {"worker": verdict.to_json()} if verdict is not None else {}
        return {**super().cached_facts(probe, subject), **worker}


Verdicts = Mapping[str, WorkerVerdict]


@dataclass(frozen=True)
class OutputQuestions:
    """The questions to an interpreter about one output."""

    name: str
    """Name of the variant."""
    questions: Sequence[ProbeQuestion]

    @property
    def subjects(self) -> frozenset[str | None]:
        """See `ProbeQuestion.subject`."""
        return frozenset(question.subject for question in self.questions)

    def unit(self, runs: VariantRuns, *, fresh: bool) -> WorkUnit:
        """The unit that asks a worker, with an archive for each file or folder that is named.

        Raises:
            OSError: a file cannot be read, or the scheduler does not answer.
        """
        arguments = [part for question in self.questions for part in question.arguments]
        paths = dict.fromkeys(part for part in arguments if isinstance(part, Path))
        roots = [path for path in paths if not any(parent in paths for parent in path.parents)]
        archives = {str(number): runs.publish(_files_at(root)) for number, root in enumerate(roots)}

        def sent(part: str | Path) -> str | dict[str, str]:
            if isinstance(part, str):
                return part
            number = next(n for n, root in enumerate(roots) if part.is_relative_to(root))
            path = part.relative_to(roots[number].parent).as_posix()
            return {"archive": str(number), "path": path}

        questions = [
            (question.probe, [sent(part) for part in question.arguments], question.general)
            for question in self.questions
        ]
        return runs.unit(self.name, {"questions": questions, "fresh": fresh}, archives)


def _files_at(path: Path) -> dict[str, Path]:
    """A file, or the files of a folder with its name before theirs."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path.parent).as_posix(): file for file in files}


def ask_workers(
    where: str,
    outputs: Iterable[Output],
    checks: Sequence[Check],
    probe_cache: ProbeCache,
    services: Services,
) -> ProbeCache:
    """Have the workers of the cluster `where` load outputs; says which are left to this machine.

    Returns:
        `probe_cache`, which also gives the answers of workers.

    Raises:
        UsageError: the credentials cannot be used.
        ToolchainError: Dask is not installed.
    """
    require_distributed()
    pythons, batches = set(), []
    for output in outputs:
        questions = questions_of(output, checks)
        if questions:
            pythons.add(output.python)
            batches.append(OutputQuestions(output.root.name, questions))
    if not batches:
        return probe_cache
    try:
        verdicts, left = _ask(where, batches, services, fresh=probe_cache.fresh)
    except (ToolchainError, OSError) as error:
        reason = error.message if isinstance(error, ToolchainError) else str(error)
        services.ui.warn(f"{reason}; this machine checks everything")
        return probe_cache
    if left:
        listed = "".join(f"\n    {name}: {'; '.join(why)}" for name, why in left.items())
        services.ui.warn(f"no worker checked these variants, so this machine does:{listed}")
    (python,) = pythons
    return WorkerVerdicts(probe_cache.folder, probe_cache.fresh, python=python, verdicts=verdicts)


def _ask(
    where: str, batches: Sequence[OutputQuestions], services: Services, *, fresh: bool
) -> tuple[dict[str, WorkerVerdict], dict[str, list[str]]]:
    """The verdicts by subject, and by variant why workers gave none."""
    verdicts: dict[str, WorkerVerdict] = {}
    discarded: dict[str, list[str]] = {}
    with variant_executor(where, services) as executor:
        runs = VariantRuns(executor, services)
        # Equal questions about equal bytes are one unit.
        units = {batch.unit(runs, fresh=fresh): batch for batch in batches}

        def take(result: UnitResult) -> None:
            try:
                verdicts.update(parse_verdicts(result, units[result.unit].subjects))
            except DamagedFileError as error:
                reason = f"worker {result.worker}: {error.message}"
                discarded.setdefault(result.unit.label, []).append(reason)

        left = runs.execute(list(units), "loading", take)
    return verdicts, {**discarded, **left}


def parse_verdicts(result: UnitResult, subjects: frozenset[str | None]) -> Verdicts:
    """The answers of a worker by subject.

    Args:
        result: what it sent.
        subjects: what it was asked about, computed on this machine.

    Raises:
        DamagedFileError: it is no such answer, or is about something else.
    """
    if result.failure:
        raise DamagedFileError(result.failure)
    with reading("the answer", "an answer of a worker"):
        document = json.loads(result.outputs["result"])
        python, torch = str(document["python"]), str(document["torch"])
        release = f", Torch {torch}" if torch else ""
        by = f"worker {result.worker} (Python {python}{release})"
        verdicts = {}
        for facts in document["answers"]:
            if facts["subject"] not in subjects:
                raise DamagedFileError("its answer is about other files than were sent")
            answer = _answer_in(facts, by, sandboxed=bool(document["sandboxed"]))
            remembered = bool(facts["remembered"])
            verdicts[str(facts["subject"])] = WorkerVerdict(
                answer, result.worker, python, torch, remembered
            )
        return verdicts


def _answer_in(facts: Mapping[str, Any], by: str, *, sandboxed: bool) -> ProbeAnswer:
    return ProbeAnswer(
        str(facts["state"]),
        str(facts["reason"]),
        {**facts["facts"]},
        str(facts["doing"]),
        int(facts["returncode"]),
        sandboxed=sandboxed,
        by=by,
    )
