"""What the checking verbs answer: values, JSON, and the verdict in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbuild.checks.base import Finding
from kbuild.checks.examination import Examination
from kbuild.cli.context import Context
from kbuild.cli.targets import Target
from kbuild.errors import CheckError, KbuildError, ToolchainError

if TYPE_CHECKING:
    from kbuild.static.verdict import Verdict

SCHEMA = 1
"""Version of the JSON; a new key leaves it, a changed or lost one raises it."""


@dataclass(frozen=True)
class Sources:
    """What was found in a project's sources."""

    project: str
    findings: tuple[Finding, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    others: tuple[str, ...] = ()
    """Backends about which only a build can say anything."""

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Those of the verdicts as well, each once."""
        found = (f for verdict in self.verdicts for f in verdict.findings)
        return tuple(dict.fromkeys((*self.findings, *found)))

    @property
    def ok(self) -> bool:
        """True without errors."""
        return not any(finding.severity == "error" for finding in self.all_findings)

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "project": self.project,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "variants": [verdict.to_json() for verdict in self.verdicts],
            "only_a_build_can_tell": list(self.others),
        }


@dataclass(frozen=True)
class Answer:
    """What was found about one target."""

    target: Target
    examinations: tuple[Examination, ...]
    sources: Sources | None = None

    @property
    def ok(self) -> bool:
        """True without errors."""
        return all(e.ok for e in self.examinations) and (self.sources is None or self.sources.ok)

    @property
    def error(self) -> KbuildError | None:
        """Why something could not be looked at."""
        verdicts = self.sources.verdicts if self.sources else ()
        return next((verdict.error for verdict in verdicts if verdict.error), None)

    def count(self, severity: str) -> int:
        """Findings of that severity."""
        found = (f for e in self.examinations for f in e.findings)
        own = self.sources.all_findings if self.sources else ()
        return sum(1 for finding in (*found, *own) if finding.severity == severity)

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "target": self.target.given,
            "kind": self.target.kind,
            "path": str(self.target.path),
            "ok": self.ok,
            "sources": self.sources.to_json() if self.sources else None,
            "outputs": [examination.to_json() for examination in self.examinations],
        }


def respond(answers: Sequence[Answer], ctx: Context, *, as_json: bool, sizes: bool = False) -> int:
    """Print everything; the exit code."""
    from kbuild.cli.show import show

    if as_json:
        ok = all(answer.ok for answer in answers)
        targets = [answer.to_json() for answer in answers]
        ctx.ui.data_json({"schema": SCHEMA, "ok": ok, "targets": targets})
    else:
        for number, answer in enumerate(answers):
            if len(answers) > 1:
                ctx.ui.data(("\n" if number else "") + ctx.ui.painted(answer.target.given, "bold"))
            show(answer, ctx.ui, sizes=sizes)
    return _conclude(answers, ctx)


def _conclude(answers: Sequence[Answer], ctx: Context) -> int:
    """The verdict in one line."""
    outputs = [e for answer in answers for e in answer.examinations]
    broken = sum(1 for examination in outputs if not examination.ok)
    breaks = "breaks" if len(outputs) == 1 else "break"
    parts = [f"{broken} of {len(outputs)} {_noun(outputs)} {breaks} a promise"] if broken else []
    parts += [
        f"the sources of {answer.sources.project} have errors"
        for answer in answers
        if answer.sources and not answer.sources.ok
    ]
    if parts:
        ctx.ui.error(CheckError("; ".join(parts), ()))
        if left := _unloaded(outputs):
            ctx.ui.say(left)
        return CheckError.code
    errors = [answer.error for answer in answers if answer.error]
    for error in errors:
        ctx.ui.error(error)
    if not errors:
        ctx.ui.say(_praise(answers, outputs, told=ctx.ui.verbosity > 0))
    return ToolchainError.code if errors else 0


def _noun(outputs: Sequence[Examination]) -> str:
    libraries = all(examination.output.alone for examination in outputs)
    plural = "libraries" if libraries else "variants"
    return {"libraries": "library", "variants": "variant"}[plural] if len(outputs) == 1 else plural


def _unloaded(outputs: Sequence[Examination]) -> str:
    """What was not run, although it is among what was asked for."""
    left = [examination.name for examination in outputs if examination.is_unloaded]
    if not left:
        return ""
    which = f"{len(left)} of {len(outputs)} " if len(left) < len(outputs) else ""
    return (
        f"{which}not loaded: built elsewhere; `--load` loads {'it' if len(left) == 1 else 'them'}"
    )


def _praise(answers: Sequence[Answer], outputs: Sequence[Examination], *, told: bool) -> str:
    counted = f"{len(outputs)} {_noun(outputs)}: no promise broken"
    parts = [counted if outputs else "no built variants were there to check"]
    parts += [left] if (left := _unloaded(outputs)) else []
    warnings = sum(answer.count("warning") for answer in answers)
    notes = sum(answer.count("info") for answer in answers)
    hint = "" if told else " (`-v` shows them)"
    parts += [f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []
    parts += [f"{notes} note{'s' if notes > 1 else ''}{hint}"] if notes else []
    return ", ".join(parts)
