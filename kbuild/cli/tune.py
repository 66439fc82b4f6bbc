"""`kbuild tune`: measures which candidate is fastest here, and writes the tuned tables."""

from __future__ import annotations

import math
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import add_python
from kbuild.system.errors import UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.dsl.tune.results import KeyResult
    from kbuild.dsl.tune.tuning import TuneResult
    from kbuild.system.ui import Ui


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="DEVICE",
        help="where to measure: cuda:1, WORKER/cuda:1, a model such as H100, or all "
        "(repeatable; default: the first GPU, with --executor all)",
    )
    parser.add_argument(
        "--op", action="append", default=[], metavar="NAME", help="tune this op only (repeatable)"
    )
    parser.add_argument(
        "--budget", metavar="TIME", help="start no new measurement after this time, e.g. 10m"
    )
    parser.add_argument(
        "--variant",
        type=Path,
        metavar="DIR",
        help="variant built with --keep-all (default: build one)",
    )
    parser.add_argument(
        "--shapes",
        type=Path,
        metavar="FILE",
        help="TOML or JSON file with the calls to measure, one table per op",
    )
    parser.add_argument(
        "--executor",
        metavar="ADDRESS",
        help="measure on the GPUs of a cluster, at tls://HOST:8786 or in a scheduler "
        "file (default: KBUILD_EXECUTOR)",
    )
    add_python(parser, "runs the kernel, and has Torch for the GPU")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be measured, without measuring"
    )
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Measure, and write the tables.

    Raises:
        IncompleteError: the time budget ended before everything was measured.
    """
    from kbuild.cli.tune_models import tune_with
    from kbuild.dsl.tune.tuning import require_complete
    from kbuild.system.quantities import parse_duration

    root = ctx.folder(args.kernel_dir)
    if args.dry_run:
        return _dry_run(args, ctx)
    if not args.variant:
        _require_candidates(root)
    limit_s = math.inf if args.budget is None else parse_duration(args.budget, "--budget")
    tuned = tune_with(args, ctx, root, limit_s)
    for tuning in tuned:
        if tuning.error is not None and len(tuned) > 1:
            ctx.ui.warn(f"{tuning.device.name}: {tuning.error.message}")
    if args.json and not all(tuning.error for tuning in tuned):
        ctx.ui.data_json({"devices": [tuning.to_json() for tuning in tuned]})
    for tuning in tuned:
        print_tuning(tuning, ctx.ui, has_table=not args.json)
    require_complete(tuned)
    return 0


def _require_candidates(root: Path) -> None:
    """Find out before any GPU is looked for that there is nothing to tune.

    Raises:
        UsageError: no kernel of the project is written in a Python DSL.
        ConfigError: there is no project, or it is wrong.
    """
    from kbuild.plan.project import open_project

    project = open_project(root)
    if not project.dsl_kernels:
        raise UsageError(
            f"{project.name} has nothing to tune: no kernel is written in a Python DSL",
            hint="`kbuild tune` measures candidates of DSL kernels; `kbuild bench` measures ops",
        )


def _dry_run(args: Namespace, ctx: Services) -> int:
    """Say what would be measured."""
    from kbuild.cli.tune_models import read_request
    from kbuild.dsl.tune.jobs import benchmarks_of

    if not args.variant:
        raise UsageError("--dry-run looks at a variant", hint="name it: --variant DIR")
    description, wish = read_request(args, ctx, ctx.folder(args.variant))
    works = benchmarks_of(description, None, wish.only, wish.cases)
    rows = [
        (work.op.name, str(launch), case.label, str(len(op_launch.candidates)))
        for work in works
        for case in work.cases
        for launch, op_launch in enumerate(work.op.launches)
    ]
    left_out = [(work.op.name, reason) for work in works for _, reason in work.left_out]
    for message in summarize_reasons(left_out):
        ctx.ui.warn(message)
    if args.json:
        names = ("op", "launch", "case", "candidates")
        ctx.ui.data_json({"measurements": [dict(zip(names, row, strict=True)) for row in rows]})
    elif rows:
        ctx.ui.table(("op", "launch", "case", "candidates"), rows)
    count = sum(int(row[-1]) for row in rows)
    ctx.ui.say(f"{len(rows)} calls, {count} candidates to measure")
    return 0


_VERDICTS = {"wrong": "wrong results", "failed": "does not run"}
_MAX_EXCLUDED_LINES = 20
"""Lines about candidates that are excluded."""
_MAX_CALL_LINES = 5
"""Calls that are not measured, each with a line of its own."""
_HEADERS = ("op", "launch", "dtypes", "key", "winner", "us", "spread", "default", "gain")
_WIDTH = 80


def print_tuning(tuned: TuneResult, ui: Ui, *, has_table: bool) -> None:
    """The winners on stdout, everything else as messages."""
    unmeasured = (*tuned.left_out, *_unmeasured_calls(tuned.results))
    for message in (
        *summarize_reasons([(case, f"not measured: {reason}") for case, reason in unmeasured]),
        *_first_lines(_excluded_lines(tuned.results)),
        *_doubtful_references(tuned.results),
    ):
        ui.warn(message)
    rows = [_winner_row(result) for result in tuned.results if result.winner is not None]
    if has_table and rows:
        ui.table(_HEADERS, rows)
        for line in dict.fromkeys(_winner_lines(tuned.results)):
            ui.data(textwrap.fill(line, _WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    for line in _tie_lines(tuned.results):
        ui.say(textwrap.fill(line, _WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    unchecked = {result.job.work.op.name for result in tuned.results if not _has_reference(result)}
    for name in sorted(unchecked):
        ui.say(
            f"{name}: results were compared only with those of its default candidate; `reference` "
            "in its `tune` table gives the correct results"
        )
    if tuned.path:
        ui.say(f"{tuned.device.name}: {tuned.path} has {len(rows)} rows of this tuning")


def _has_reference(result: KeyResult) -> bool:
    return bool(result.job.work.op.tune.reference)


def _excluded_lines(results: Sequence[KeyResult]) -> Iterator[str]:
    """Each candidate once, with the first call where it fails."""
    lines_by_place: dict[tuple[str, int, str, str], list[str]] = {}
    for result in results:
        job = result.job
        for kind, name, why in result.excluded():
            place = (job.case.op.name, job.launch, kind, name)
            lines_by_place.setdefault(place, []).append(
                f"{job.case.label}: {name}: {_VERDICTS[kind]}: {why}"
            )
    # What computes something wrong is worth more than what does not run.
    for (_, _, _, _), lines in sorted(
        lines_by_place.items(), key=lambda item: item[0][2] != "wrong"
    ):
        more = len(lines) - 1
        yield f"{lines[0]}{f' (and for {more} more)' if more else ''}"


def _first_lines(lines: Iterable[str]) -> Iterator[str]:
    every = list(lines)
    yield from every[:_MAX_EXCLUDED_LINES]
    if every[_MAX_EXCLUDED_LINES:]:
        yield f"{len(every) - _MAX_EXCLUDED_LINES} more candidates are excluded; --json lists them"


def summarize_reasons(calls: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Calls with their reasons; one line if many calls have the same reason."""
    calls_by_reason: dict[str, list[str]] = {}
    for call, reason in calls:
        calls_by_reason.setdefault(
            reason if len(calls) > _MAX_CALL_LINES else f"{call}: {reason}", []
        ).append(call)
    for reason, some in calls_by_reason.items():
        more = len(some) - 1
        shown = f"{some[0]} and {more} more" if more else some[0]
        yield f"{shown}: {reason}" if len(calls) > _MAX_CALL_LINES else reason


def _unmeasured_calls(results: Sequence[KeyResult]) -> Iterator[tuple[str, str]]:
    for result in results:
        errors = [(job.case.label, out.error) for job, out in result.measured if out.error]
        yield from errors
        if result.winner is None and not errors:
            yield result.job.case.label, "no candidate runs"


def _doubtful_references(results: Sequence[KeyResult]) -> Iterator[str]:
    for result in results:
        job = result.job
        wrong = sum(kind == "wrong" for kind, _, _ in result.excluded())
        if not _has_reference(result) and wrong > len(job.candidates) / 2:
            yield (
                f"{job.case.label}: most candidates differ from the default one, which may itself "
                "be wrong; set `reference` in the `tune` table to find out"
            )


def _winner_row(result: KeyResult) -> tuple[str, ...]:
    case = result.job.case
    is_default = result.winner == result.default
    return (
        case.op.name,
        str(result.job.launch),
        _dtypes(result),
        _key(result),
        "default" if is_default else f"#{(result.winner or 0) + 1}",
        f"{result.microseconds:.1f}",
        f"{result.spread:.1%}" if result.spread else "-",
        f"{result.default_microseconds:.1f}",
        "-" if is_default else f"{result.gain:+.1%}",
    )


def _winner_lines(results: Sequence[KeyResult]) -> Iterator[str]:
    """The lines that explain the numbers of candidates."""
    for result in results:
        numbers = [] if result.winner is None else [result.winner, *result.ties]
        job = result.job
        for number in sorted(numbers):
            place = f"{job.case.op.name}, launch {job.launch}, #{number + 1}"
            yield f"{place}: {result.name(number)}"


def _tie_lines(results: Sequence[KeyResult]) -> Iterator[str]:
    """Candidates that were left alone, though about as fast as the winner."""
    from kbuild.dsl.tune.results import MIN_GAIN

    for result in results:
        if not result.ties:
            continue
        others = ", ".join(f"#{index + 1}" for index in result.ties)
        verb = "is" if len(result.ties) == 1 else "are"
        reason = f"as fast as #{(result.winner or 0) + 1}, which comes first"
        if result.winner == result.default:
            reason = f"less than {MIN_GAIN:.0%} faster than the default"
        place = f"{result.job.case.op.name} {_key(result)} {_dtypes(result)}"
        yield f"{place}: {others} {verb} {reason}"


def _dtypes(result: KeyResult) -> str:
    return "/".join(dict.fromkeys(dtype for _, dtype in result.job.case.dtypes))


def _key(result: KeyResult) -> str:
    return ",".join(map(str, result.job.case.key)) or "-"
