"""Answers of probes that other machines got in their own interpreters.

Such an answer holds for the worker's interpreter alone, so no cache of this machine keeps it: the
worker does, which sees when its interpreter changes. Here it is used by one command, for exactly
the bytes that were sent, and says who gave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbuild.checks.base import Check, Output, findings_of
from kbuild.checks.probe_cache import ProbeCache, ProbeQuestion
from kbuild.checks.probe_process import ProbeAnswer
from kbuild.system.processes import Runner


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
    ) -> ProbeAnswer:
        """An answer after which checks ask the next question."""
        del runner
        if python == self.python:
            self.questions.append(ProbeQuestion(python, probe, arguments, general))
        return ProbeAnswer("loaded", "")


def questions_of(output: Output, checks: Iterable[Check]) -> list[ProbeQuestion]:
    """What the checks ask `output.python` about an output, as far as its files can be read."""
    recorder = QuestionRecorder(python=output.python)
    for check in checks:
        if check.asks_probes and output.alone is None:
            findings_of(check, replace(output, memory=recorder))
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
        """Who gave the answer, as a JSON object."""
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
    """By `ProbeQuestion.subject`."""
    used: dict[tuple[str, Path], WorkerVerdict] = field(default_factory=dict, compare=False)
    """By probe and what it was asked about."""

    def ask(
        self,
        runner: Runner,
        python: Path,
        probe: str,
        *arguments: str | Path,
        general: tuple[str, ...] = (),
    ) -> ProbeAnswer:
        """See `ProbeCache.ask`."""
        if python == self.python and self.verdicts:
            subject = ProbeQuestion(python, probe, arguments).subject
            verdict = self.verdicts.get(subject or "")
            if verdict is not None:
                self.used[probe, Path(arguments[0])] = verdict
                return verdict.answer
        return super().ask(runner, python, probe, *arguments, general=general)

    def cached_facts(self, probe: str, subject: Path) -> dict[str, Any]:
        """See `ProbeCache.cached_facts`; `worker` says which one answered."""
        verdict = self.used.get((probe, subject))
        worker = {"worker": verdict.to_json()} if verdict is not None else {}
        return {**super().cached_facts(probe, subject), **worker}
