"""What `kbuild tune` says when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kbuild.tune.tuning import Tuned
from kbuild.tune.winners import Result
from kbuild.ui import Ui

_VERDICTS = {"wrong": "wrong results", "failed": "does not run"}
_MOST = 20
"""Lines about candidates that are excluded."""
_MOST_CALLS = 5
"""Calls that are not measured, each with a line of its own."""
_HEADERS = ("op", "launch", "dtypes", "key", "winner", "us", "default us", "gain")


def report(tuned: Tuned, ui: Ui, *, has_table: bool) -> None:
    """The winners on stdout, everything else as talk."""
    unmeasured = (*tuned.left_out, *_unmeasured(tuned.results))
    for words in (
        *summed([(case, f"not measured: {reason}") for case, reason in unmeasured]),
        *_shortened(_excluded(tuned.results)),
        *_doubts(tuned.results),
    ):
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


def summed(calls: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Calls with what is said of each; one line for all of the same when there are many."""
    found: dict[str, list[str]] = {}
    for call, said in calls:
        found.setdefault(said if len(calls) > _MOST_CALLS else f"{call}: {said}", []).append(call)
    for said, some in found.items():
        more = len(some) - 1
        shown = f"{some[0]} and {more} more" if more else some[0]
        yield f"{shown}: {said}" if len(calls) > _MOST_CALLS else said


def _unmeasured(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    for result in results:
        errors = [(one.case.label, out.error) for one, out in result.measured if out.error]
        yield from errors
        if result.winner is None and not errors:
            yield result.job.case.label, "no candidate runs"


def _doubts(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        job = result.job
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
