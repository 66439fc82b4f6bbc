"""Runs the selected checks on one output and reports the state, findings and facts of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kbuild.checks.allow import overrule
from kbuild.checks.base import (
    CHECKS,
    LIBRARY_GROUPS,
    Check,
    Finding,
    Group,
    Output,
    findings_of,
)
from kbuild.checks.libraries import metadata_of
from kbuild.system.errors import DamagedFileError, UsageError

State = Literal["ok", "note", "warn", "fail", "-"]
"""The state of a check, or of a group of them; `-` when nothing applied."""
STATES_BY_SEVERITY: tuple[State, ...] = ("fail", "warn", "note", "ok", "-")
_STATE_OF: Mapping[str, State] = {"error": "fail", "warning": "warn", "info": "note"}


@dataclass(frozen=True)
class CheckSelection:
    """The wanted checks; empty fields want all."""

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    slow: bool = True
    strict: bool = False
    """Warnings are errors."""
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Checks that are overruled, with reasons; see `kbuild.checks.allow`."""

    def wants(self, name: str) -> bool:
        """True for a check of that name."""
        return (not self.only or name in self.only) and name not in self.skip

    def checks(self) -> tuple[Check, ...]:
        """The selected checks of outputs, plug-ins included, in name order."""
        return tuple(
            check
            for check in CHECKS.load(plugins=True)
            if self.wants(check.name)
            and (not self.groups or check.group in self.groups)
            and (self.slow or not check.slow)
        )

    @property
    def starts_python(self) -> bool:
        """True when a check is wanted that loads kernels; without names of checks, one is."""
        is_narrow = bool(self.only or self.skip or self.groups)
        return self.slow and (not is_narrow or any(check.slow for check in self.checks()))

    def judged(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings that are wanted, as severe as they are wanted."""
        wanted = (finding for finding in findings if self.wants(finding.check))
        if self.strict:
            wanted = (
                replace(f, severity="error") if f.severity == "warning" else f for f in wanted
            )
        return overrule(wanted, self.allowed)


@dataclass(frozen=True)
class CheckReport:
    """The findings and facts of all checks about one output."""

    output: Output
    states: Mapping[str, State]
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The variant's folder, or the library's file."""
        return (self.output.alone or self.output.root).name

    @property
    def ok(self) -> bool:
        """True without errors."""
        return "fail" not in self.states.values()

    @property
    def is_unloaded(self) -> bool:
        """True when a check that loads was asked for, and left it alone because it is foreign."""
        return self.states.get("load", "-") != "-" and self.output.is_barred

    def to_json(self) -> dict[str, Any]:
        """The outcome as a JSON object."""
        return {
            "name": self.name,
            "variant": str(self.output.variant) if self.output.variant else None,
            "path": str(self.output.alone or self.output.root),
            "ok": self.ok,
            "checks": dict(self.states),
            "facts": {check: dict(facts) for check, facts in self.facts.items()},
            "findings": [finding.to_json() for finding in self.findings],
        }


def run_selected_checks(
    output: Output, checks: Iterable[Check], wanted: CheckSelection
) -> CheckReport:
    """Ask every check that applies."""
    states: dict[str, State] = {}
    findings: list[Finding] = []
    facts: dict[str, Mapping[str, Any]] = {}
    metadata = metadata_of(output)
    known = metadata.overruled if metadata else {}
    for check in checks:
        is_applicable = output.alone is None or check.group in LIBRARY_GROUPS
        answered = findings_of(check, output) if is_applicable else None
        if answered is None:
            states.setdefault(check.name, "-")
            continue
        judged = tuple(_with_author_reason(finding, known) for finding in wanted.judged(answered))
        states[check.name] = worst_state([states.get(check.name, "-"), "ok"])
        for finding in judged:  # loading a kernel also answers questions of the check `ops`
            before = states.get(finding.check, "-")
            states[finding.check] = worst_state([before, _STATE_OF[finding.severity]])
        findings += judged
        with suppress(DamagedFileError, OSError, RecursionError, MemoryError):  # found above
            measured = check.facts(output)
            if measured:
                facts[check.name] = measured
    return CheckReport(output, states, tuple(findings), facts)


def _with_author_reason(finding: Finding, known: Mapping[str, str]) -> Finding:
    """An error that the author knew of when the variant was built; it stays one for others."""
    if finding.severity != "error" or finding.check not in known:
        return finding
    word = f"the author overruled it ({known[finding.check]}); `--allow {finding.check}` does too"
    return replace(finding, hint="; ".join(filter(None, (finding.hint, word))))


def worst_state(states: Iterable[State]) -> State:
    """The state of all together."""
    return min(states, key=STATES_BY_SEVERITY.index, default="-")


def validate_check_names(names: Iterable[str], known: Iterable[str], option: str) -> None:
    """Stop at a name that no check has.

    Raises:
        UsageError: with the name that may be meant.
    """
    from kbuild.project.config.issue import one_of

    choices = sorted(known)
    for name in names:
        if name not in choices:
            raise UsageError(f"{option}: there is no check `{name}`", hint=one_of(name, choices))
