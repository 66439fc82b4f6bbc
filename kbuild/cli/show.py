"""How an answer looks in a terminal: a table of states, then findings by check.

Everything reads well at 80 columns and without colour; in a pipe no line is folded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from kbuild.checks.base import CHECKS, Finding, Group
from kbuild.checks.examination import Examination, worst
from kbuild.checks.size import size_text
from kbuild.cli.answer import Answer, Sources
from kbuild.config.suggest import printable
from kbuild.errors import Repetition, grouped
from kbuild.static import SOURCE_CHECKS
from kbuild.terminal import Paint
from kbuild.ui import Ui

if TYPE_CHECKING:
    from kbuild.static.verdict import Verdict

STYLES: Mapping[str, Paint] = {
    "ok": "green",
    "fail": "red",
    "broken": "red",
    "warn": "yellow",
    "note": "cyan",
    "unchecked": "yellow",
    "-": "dim",
}
_LABELS: Mapping[str, tuple[str, Paint]] = {
    "error": ("error", "red"),
    "warning": ("warning", "yellow"),
    "info": ("note", "cyan"),
}
"""In order of severity: what a finding is called, and its colour."""
_NAMED = 3
_SMALL = 0.02
"""A file with less than this share of a variant is not listed by itself."""


def show(answer: Answer, ui: Ui, *, sizes: bool) -> None:
    """Print one target's answer."""
    if answer.sources:
        _show_sources(answer.sources, ui)
    if answer.examinations:
        if answer.sources and answer.sources.verdicts:
            ui.data("\n")
        _show_states(answer.examinations, ui)
    if sizes:
        _show_sizes(answer.examinations, ui)
    _show_findings(answer, ui)


def _show_states(examinations: Sequence[Examination], ui: Ui) -> None:
    """Rows are variants, columns are groups of checks."""
    groups = _groups(examinations)
    rows = [
        (
            printable(examination.name),
            *(
                worst(examination.states[name] for name in names if name in examination.states)
                for names in groups.values()
            ),
        )
        for examination in examinations
    ]
    head = "library" if examinations[0].output.alone else "variant"
    ui.table((head, *groups), rows, STYLES)


def _groups(examinations: Sequence[Examination]) -> dict[str, list[str]]:
    """Group -> the checks of it that were asked, in the order of `Group`."""
    asked = {name for examination in examinations for name in examination.states}
    found: dict[str, list[str]] = {group: [] for group in get_args(Group)}
    for check in CHECKS:
        if check.name in asked:
            found[check.group].append(check.name)
    return {group: names for group, names in found.items() if names}


def _show_sources(sources: Sources, ui: Ui) -> None:
    if sources.verdicts:
        rows = [(v.variant, v.state, _proved(v), v.unproved) for v in sources.verdicts]
        if ui.width is None:
            ui.table(("sources for", "state", "proved", "not proved"), rows, STYLES)
        else:
            ui.table(("sources for", "state"), [row[:2] for row in rows], STYLES)
            for _, _, proved, unproved in dict.fromkeys((None, None, *row[2:]) for row in rows):
                ui.data(_wrapped(f"{proved}; {unproved}", "  ", ui.width))
    if sources.others:
        named = ", ".join(sources.others)
        ui.say(f"sources of {named} not looked at; `kbuild build` compiles what it can")


def _proved(verdict: Verdict) -> str:
    """What was proved; a broken variant's types were looked at, not proved."""
    if verdict.state == "broken":
        errors = sum(1 for finding in verdict.findings if finding.severity == "error")
        return f"{errors} error{'s' if errors != 1 else ''}"
    known = f" ({verdict.remembered} remembered)" if verdict.remembered else ""
    return f"{verdict.proved or 'nothing'}{known}"


def _show_sizes(examinations: Sequence[Examination], ui: Ui) -> None:
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
    large = {name: size for name, size in files.items() if size > total * _SMALL}
    yield f"{len(files)} files", size_text(total)
    for name, size in large.items():
        yield printable(name), size_text(size)
        for code in facts["archs"]:
            if code["library"] == name:
                kind = "" if code["kind"] == "machine" else f" {code['kind']}"
                yield f"  {code['arch']}{kind}", size_text(code["size"])
    if len(files) > len(large):
        yield f"{len(files) - len(large)} others", size_text(total - sum(large.values()))


def _show_findings(answer: Answer, ui: Ui) -> None:
    """By check; what several outputs share is said once."""
    summaries = {**SOURCE_CHECKS, **{check.name: check.summary for check in CHECKS}}
    shared = _shared(answer)
    for check in dict.fromkeys(finding.check for finding in shared):
        found = [(f, places) for f, places in shared.items() if f.check == check]
        shown = [(f, p) for f, p in found if f.severity != "info" or ui.verbosity > 0]
        if shown:
            heading = _wrapped(f"{check}: {summaries.get(check, '')}", "", ui.width).rstrip(": ")
            ui.data("\n" + heading.replace(check, ui.painted(check, "bold"), 1))
        for repetition in _told_together(shown, ui):
            finding, places = repetition.first
            all_of_them = len(places) == len(answer.examinations)
            noted = finding.with_note(repetition.note)
            ui.data("\n".join(_lines(noted, "" if all_of_them else _some(places), ui)))


def _told_together(
    shown: Sequence[tuple[Finding, list[str]]], ui: Ui
) -> Sequence[Repetition[tuple[Finding, list[str]]]]:
    """What is said of the same outputs and is the same, together; each by itself with `-v`."""
    if ui.verbosity > 0:
        return [Repetition(one, (one[0].where,)) for one in shown]
    return grouped(
        shown,
        lambda one: ((one[0].severity, one[0].objects, *one[1]), one[0].what, one[0].where),
    )


def _shared(answer: Answer) -> dict[Finding, list[str]]:
    """Finding -> the outputs that it is about, by check and worst first.

    What is found in a source and in its copy in a variant is said of the source.
    """
    found: dict[Finding, list[str]] = {}
    on_sources: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in answer.sources.all_findings if answer.sources else ():
        found.setdefault(finding, [])
        on_sources.setdefault(_said(finding), []).append(finding)
    for examination in answer.examinations:
        for finding in examination.findings:
            same = on_sources.get(_said(finding), ())
            copied = (source for source in same if source.where.endswith(f"/{finding.where}"))
            found.setdefault(next(copied, finding), []).append(examination.name)
    order = list(_LABELS)
    return dict(
        sorted(found.items(), key=lambda item: (item[0].check, order.index(item[0].severity)))
    )


def _said(finding: Finding) -> tuple[str, str, str]:
    return finding.check, finding.severity, finding.what


def _lines(finding: Finding, places: str, ui: Ui) -> Iterator[str]:
    label, style = _LABELS[finding.severity]
    text = _wrapped(f"{label}: {finding.where}: {finding.what}", "  ", ui.width)
    yield text.replace(f"{label}:", ui.painted(f"{label}:", style), 1)
    rest = {
        "from": ", ".join(finding.objects),
        "overruled": finding.overruled,
        "fix": finding.hint,
        "in": places,
    }
    for key, value in rest.items():
        if value:
            text = _wrapped(f"{key}: {value}", "    ", ui.width)
            yield text.replace(f"{key}:", ui.painted(f"{key}:", "cyan"), 1)


def _some(places: Sequence[str]) -> str:
    shown = ", ".join(places[:_NAMED])
    more = len(places) - _NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _wrapped(text: str, indent: str, width: int | None) -> str:
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
