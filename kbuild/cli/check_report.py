"""The results of the checking commands: as JSON, as tables in a terminal, and the exit code.

The text reads well at 80 columns and without colour; in a pipe no line is folded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from kbuild.checks.base import CHECKS, SOURCE_CHECKS, Finding, Group
from kbuild.checks.report import CheckReport, worst_state
from kbuild.cli.variants import CheckTarget
from kbuild.project.config.issue import printable
from kbuild.system.errors import CheckError, Repetition, grouped
from kbuild.system.quantities import size_text
from kbuild.system.services import Services
from kbuild.system.ui import Style, Ui

REPORT_SCHEMA = 2
"""Version of the JSON; a new key leaves it, a changed or lost one raises it."""


@dataclass(frozen=True)
class SourceReport:
    """Findings on a project's sources."""

    project: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """True without errors."""
        return not any(finding.severity == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "project": self.project,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(frozen=True)
class TargetReport:
    """Findings on one target."""

    target: CheckTarget
    examinations: tuple[CheckReport, ...]
    sources: SourceReport | None = None

    @property
    def ok(self) -> bool:
        """True without errors."""
        return all(e.ok for e in self.examinations) and (self.sources is None or self.sources.ok)

    def count(self, severity: str) -> int:
        """Findings of that severity."""
        findings = (f for e in self.examinations for f in e.findings)
        own = self.sources.findings if self.sources else ()
        return sum(1 for finding in (*findings, *own) if finding.severity == severity)

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


def print_reports(
    answers: Sequence[TargetReport], ctx: Services, *, as_json: bool, sizes: bool = False
) -> int:
    """Print everything; the exit code."""
    if as_json:
        ok = all(answer.ok for answer in answers)
        targets = [answer.to_json() for answer in answers]
        ctx.ui.data_json({"schema": REPORT_SCHEMA, "ok": ok, "targets": targets})
    else:
        for number, answer in enumerate(answers):
            if len(answers) > 1:
                ctx.ui.data(("\n" if number else "") + ctx.ui.painted(answer.target.given, "bold"))
            print_report(answer, ctx.ui, sizes=sizes)
    return _print_verdict(answers, ctx)


def _print_verdict(answers: Sequence[TargetReport], ctx: Services) -> int:
    """The verdict in one line."""
    outputs = [e for answer in answers for e in answer.examinations]
    broken = sum(1 for examination in outputs if not examination.ok)
    fails = "fails" if len(outputs) == 1 else "fail"
    parts = (
        [f"{broken} of {len(outputs)} {_output_noun(outputs)} {fails} a check"] if broken else []
    )
    parts += [
        f"the sources of {answer.sources.project} have errors"
        for answer in answers
        if answer.sources and not answer.sources.ok
    ]
    if parts:
        ctx.ui.error(CheckError("; ".join(parts), ()))
        if left := _not_loaded_note(outputs):
            ctx.ui.say(left)
        return CheckError.code
    ctx.ui.say(_success_summary(answers, outputs, verbose=ctx.ui.verbosity > 0))
    return 0


def _output_noun(outputs: Sequence[CheckReport]) -> str:
    libraries = all(examination.output.alone for examination in outputs)
    plural = "libraries" if libraries else "variants"
    return {"libraries": "library", "variants": "variant"}[plural] if len(outputs) == 1 else plural


def _not_loaded_note(outputs: Sequence[CheckReport]) -> str:
    """The note on checks that were asked for and did not run."""
    left = [examination.name for examination in outputs if examination.is_unloaded]
    if not left:
        return ""
    which = f"{len(left)} of {len(outputs)} " if len(left) < len(outputs) else ""
    return (
        f"{which}not loaded: built elsewhere; `--load` loads {'it' if len(left) == 1 else 'them'}"
    )


def _success_summary(
    answers: Sequence[TargetReport], outputs: Sequence[CheckReport], *, verbose: bool
) -> str:
    counted = f"{len(outputs)} {_output_noun(outputs)}: all checks passed"
    parts = [counted if outputs else "no built variants were there to check"]
    parts += [left] if (left := _not_loaded_note(outputs)) else []
    warnings = sum(answer.count("warning") for answer in answers)
    notes = sum(answer.count("info") for answer in answers)
    hint = "" if verbose else " (`-v` shows them)"
    parts += [f"{warnings} warning{'s' if warnings > 1 else ''}"] if warnings else []
    parts += [f"{notes} note{'s' if notes > 1 else ''}{hint}"] if notes else []
    return ", ".join(parts)


STATE_STYLES: Mapping[str, Style] = {
    "ok": "green",
    "fail": "red",
    "warn": "yellow",
    "note": "cyan",
    "-": "dim",
}
_SEVERITY_LABELS: Mapping[str, tuple[str, Style]] = {
    "error": ("error", "red"),
    "warning": ("warning", "yellow"),
    "info": ("note", "cyan"),
}
"""Label and colour of each severity, in this order."""
_MAX_NAMED = 3
_SMALL_SHARE = 0.02
"""A file with less than this share of a variant is not listed by itself."""


def print_report(answer: TargetReport, ui: Ui, *, sizes: bool) -> None:
    """Print one target's answer."""
    if answer.examinations:
        # Rows are variants, columns are groups of checks.
        # Group -> the checks of it that were asked, in the order of `Group`.
        asked = {name for examination in answer.examinations for name in examination.states}
        checks_by_group: dict[str, list[str]] = {group: [] for group in get_args(Group)}
        for check in CHECKS:
            if check.name in asked:
                checks_by_group[check.group].append(check.name)
        groups = {group: names for group, names in checks_by_group.items() if names}
        rows = [
            (
                printable(examination.name),
                *(
                    worst_state(
                        examination.states[name] for name in names if name in examination.states
                    )
                    for names in groups.values()
                ),
            )
            for examination in answer.examinations
        ]
        head = "library" if answer.examinations[0].output.alone else "variant"
        ui.table((head, *groups), rows, STATE_STYLES)
    if sizes:
        _show_sizes(answer.examinations, ui)
    _show_findings(answer, ui)


def _show_sizes(examinations: Sequence[CheckReport], ui: Ui) -> None:
    rows = [
        ("" if number else examination.name, *row)
        for examination in examinations
        if "size" in examination.facts
        for number, row in enumerate(_sizes(examination.facts["size"]))
    ]
    if rows:
        ui.data("\n")
        ui.table(("variant", "file", "size"), rows)


def _sizes(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All files together, the large ones with their device code, and the rest together."""
    total, files = facts["total"], facts["files"]
    large = {name: size for name, size in files.items() if size > total * _SMALL_SHARE}
    yield f"{len(files)} files", size_text(total)
    for name, size in large.items():
        yield printable(name), size_text(size)
        for code in facts["archs"]:
            if code["library"] == name:
                kind = "" if code["kind"] == "machine" else f" {code['kind']}"
                yield f"  {code['arch']}{kind}", size_text(code["size"])
    if len(files) > len(large):
        yield f"{len(files) - len(large)} others", size_text(total - sum(large.values()))


def _show_findings(answer: TargetReport, ui: Ui) -> None:
    """Print the findings by check; those that several outputs share are printed once."""
    shared = _outputs_by_finding(answer)
    if not shared:
        return
    summaries = {**SOURCE_CHECKS, **{check.name: check.summary for check in CHECKS}}
    for check in dict.fromkeys(finding.check for finding in shared):
        findings = [(f, places) for f, places in shared.items() if f.check == check]
        shown = [(f, p) for f, p in findings if f.severity != "info" or ui.verbosity > 0]
        if shown:
            heading = _wrap(f"{check}: {summaries.get(check, '')}", "", ui.width).rstrip(": ")
            ui.data("\n" + heading.replace(check, ui.painted(check, "bold"), 1))
        for repetition in _group_findings(shown, ui):
            finding, places = repetition.first
            all_of_them = len(places) == len(answer.examinations)
            noted = finding.with_note(repetition.note)
            ui.data(
                "\n".join(_finding_lines(noted, "" if all_of_them else _first_places(places), ui))
            )


def _group_findings(
    shown: Sequence[tuple[Finding, list[str]]], ui: Ui
) -> Sequence[Repetition[tuple[Finding, list[str]]]]:
    """Group findings that are the same for the same outputs; each stays by itself with `-v`."""
    if ui.verbosity > 0:
        return [Repetition(entry, (entry[0].where,)) for entry in shown]
    return grouped(
        shown,
        lambda entry: (
            (entry[0].severity, entry[0].objects, *entry[1]),
            entry[0].what,
            entry[0].where,
        ),
    )


def _outputs_by_finding(answer: TargetReport) -> dict[Finding, list[str]]:
    """Finding -> the outputs that it is about, by check and worst first.

    What is found in a source and in its copy in a variant is said of the source.
    """
    outputs_by_finding: dict[Finding, list[str]] = {}
    on_sources: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in answer.sources.findings if answer.sources else ():
        outputs_by_finding.setdefault(finding, [])
        on_sources.setdefault(_finding_key(finding), []).append(finding)
    for examination in answer.examinations:
        for finding in examination.findings:
            same = on_sources.get(_finding_key(finding), ())
            copied = (source for source in same if source.where.endswith(f"/{finding.where}"))
            outputs_by_finding.setdefault(next(copied, finding), []).append(examination.name)
    order = list(_SEVERITY_LABELS)
    return dict(
        sorted(
            outputs_by_finding.items(),
            key=lambda item: (item[0].check, order.index(item[0].severity)),
        )
    )


def _finding_key(finding: Finding) -> tuple[str, str, str]:
    return finding.check, finding.severity, finding.what


def _finding_lines(finding: Finding, places: str, ui: Ui) -> Iterator[str]:
    label, style = _SEVERITY_LABELS[finding.severity]
    text = _wrap(f"{label}: {finding.where}: {finding.what}", "  ", ui.width)
    yield text.replace(f"{label}:", ui.painted(f"{label}:", style), 1)
    rest = {
        "from": ", ".join(finding.objects),
        "overruled": finding.overruled,
        "fix": finding.hint,
        "in": places,
    }
    for key, value in rest.items():
        if value:
            text = _wrap(f"{key}: {value}", "    ", ui.width)
            yield text.replace(f"{key}:", ui.painted(f"{key}:", "cyan"), 1)


def _first_places(places: Sequence[str]) -> str:
    shown = ", ".join(places[:_MAX_NAMED])
    more = len(places) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _wrap(text: str, indent: str, width: int | None) -> str:
    """Indented, and folded at the terminal's width; every line of the text starts a new one."""
    first, *rest = (printable(line) for line in text.split("\n"))
    deeper = indent + "  "
    lines = [(indent, first), *((deeper, line) for line in rest)]
    if width is None:
        return "\n".join(before + line for before, line in lines)
    return "\n".join(
        textwrap.fill(
            line,
            width,
            initial_indent=before,
            subsequent_indent=deeper,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for before, line in lines
    )
