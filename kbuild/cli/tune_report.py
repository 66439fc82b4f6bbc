"""What `kbuild tune` says when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kbuild.tune.tuning import Tuned
from kbuild.tune.winners import Result
from kbuild.ui import Ui

_VERDICTS = {"wrong": "wrong results", "failed": "does not run"}
_MOST = 20
"""Lines about candidates that are excluded."""
_HEADERS = ("op", "launch", "dtypes", "key", "winner", "us", "default us", "gain")


def report(tuned: Tuned, ui: Ui, *, has_table: bool) -> None:
    """The winners on stdout, everything else as talk."""
    for case, reason in tuned.left_out:
        ui.warn(f"{case}: not measured: {reason}")
    for words in (*_shortened(_excluded(tuned.results)), *_doubts(tuned.results)):
        ui.warn(words)
    rows = [_row(result) for result in tuned.results if result.winner is not None]
    if has_table and rows:
        ui.table(_HEADERS, rows)
    unchecked = {result.job.work.op.name for result in tuned.results if not _is_checked(result)}
    for name in sorted(unchecked):
        ui.say(
            f"{name}: results were compared with those of its default candidate alone; "
            "`reference` in its `tune` table compares with what is right"
        )
    if tuned.path:
        ui.say(f"{tuned.device.name}: {tuned.path} has {len(rows)} rows of this tuning")


def _is_checked(result: Result) -> bool:
    return bool(result.job.work.op.tune.reference)


def _excluded(results: Sequence[Result]) -> Iterator[str]:
    """Each candidate once, with the first call where it fails."""
    found: dict[tuple[str, int, str, str], list[str]] = {}
    for result in results:
        job = result.job
        for kind, name, why in result.excluded():
            place = (job.case.op.name, job.launch, kind, name)
            found.setdefault(place, []).append(
                f"{job.case.label}: {name}: {_VERDICTS[kind]}: {why}"
            )
    # What computes something wrong is worth more than what does not run.
    for (_, _, _, _), words in sorted(found.items(), key=lambda item: item[0][2] != "wrong"):
        more = len(words) - 1
        yield f"{words[0]}{f' (and for {more} more)' if more else ''}"


def _shortened(lines: Iterable[str]) -> Iterator[str]:
    every = list(lines)
    yield from every[:_MOST]
    if every[_MOST:]:
        yield f"{len(every) - _MOST} more candidates are excluded; --json lists them"


def _doubts(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        job = result.job
        errors = [(one.case.label, out.error) for one, out in result.measured if out.error]
        for label, error in errors:
            yield f"{label}: not measured: {error}"
        if result.winner is None and not errors:
            yield f"{job.case.label}: no candidate runs"
        wrong = sum(kind == "wrong" for kind, _, _ in result.excluded())
        if not _is_checked(result) and wrong > len(job.candidates) / 2:
            yield (
                f"{job.case.label}: most candidates differ from the default one, which may be the "
                "wrong one; `reference` in the `tune` table would tell"
            )


def _row(result: Result) -> tuple[str, ...]:
    case = result.job.case
    is_default = result.winner == result.default
    return (
        case.op.name,
        str(result.job.launch),
        "/".join(dict.fromkeys(dtype for _, dtype in case.dtypes)),
        ",".join(map(str, case.key)) or "-",
        "default" if is_default else result.name(result.winner or 0),
        f"{result.microseconds:.1f}",
        f"{result.default_microseconds:.1f}",
        "-" if is_default else f"{result.gain:+.1%}",
    )
