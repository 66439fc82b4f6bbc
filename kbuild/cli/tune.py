"""`kbuild tune`: which candidate is the fastest, measured here; kept in the project's tables."""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.built import add_python, chosen_python
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.languages.description import Description
    from kbuild.tune.devices import Device, Found
    from kbuild.tune.tuning import Tuned, Wish


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from kbuild.cli.tune_import import add_import

    add_kernel_dir(parser)
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="DEVICE",
        help="where to measure: cuda:1, or all; GPUs of one model share the work (repeatable; "
        "default: the first GPU); with --import the GPU's name",
    )
    parser.add_argument(
        "--op", action="append", default=[], metavar="NAME", help="tune this op only (repeatable)"
    )
    parser.add_argument(
        "--budget", metavar="TIME", help="start no measurement this long after the first, e.g. 10m"
    )
    parser.add_argument(
        "--variant",
        type=Path,
        metavar="DIR",
        help="a variant that was built with --keep-all (default: it is built)",
    )
    parser.add_argument(
        "--shapes",
        type=Path,
        metavar="FILE",
        help="TOML or JSON with the calls to measure, a table for each op",
    )
    add_python(parser, "runs the kernel, and has Torch for the GPU")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be measured, and measure nothing"
    )
    add_json(parser)
    add_import(parser)


def execute(args: Namespace, ctx: Context) -> int:
    """Measure, and write the tables.

    Raises:
        IncompleteError: the budget was over before everything was measured.
    """
    from kbuild.cli.tune_build import built_for
    from kbuild.tune.tuning import refuse_incomplete

    root = ctx.folder(args.kernel_dir)
    if args.imports:
        from kbuild.cli.tune_import import execute_import

        return execute_import(args, ctx, root)
    if args.dry_run:
        return _dry_run(args, ctx)
    limit_s, python = _limit_s(args), chosen_python(args.python, ctx)
    found = _found(ctx, python)
    devices = found.chosen(args.device)
    variant = _named(args, ctx) or built_for(ctx, root, python, devices[0], found.torch)
    description, wish = _asked(args, ctx, variant)
    ends = time.monotonic() + limit_s
    tuned = _tuned(ctx, root, (python, variant, ends), description, wish, devices, found.torch)
    _report(args, ctx, tuned)
    refuse_incomplete(tuned)
    return 0


def _found(ctx: Context, python: Path) -> Found:
    from kbuild.tune.devices import ask

    with ctx.ui.step(f"looking for GPUs with {python}"):
        return ask(ctx.runner, python)


def _limit_s(args: Namespace) -> float:
    if args.budget is None:
        return math.inf
    from kbuild.build.quantity import parse_duration

    return parse_duration(args.budget, "--budget")


def _named(args: Namespace, ctx: Context) -> Path | None:
    return ctx.folder(args.variant) if args.variant else None


def _asked(args: Namespace, ctx: Context, variant: Path) -> tuple[Description, Wish]:
    """What is in the variant, and what is measured of that."""
    from kbuild.config.suggest import one_of
    from kbuild.languages.description import read_description
    from kbuild.tune.shapes import read_shapes
    from kbuild.tune.tuning import Wish

    description = read_description(variant)
    ops = [op for kernel in description.kernels for op in kernel.ops()]
    names = [op.name for op in ops]
    for name in args.op:
        if name not in names:
            raise UsageError(f"there is no op `{name}`", hint=one_of(name, names))
    cases = read_shapes(ctx.path(args.shapes), ops) if args.shapes else {}
    return description, Wish(tuple(args.op), cases)


def _tuned(  # noqa: PLR0917
    ctx: Context,
    root: Path,
    given: tuple[Path, Path, float],
    description: Description,
    wish: Wish,
    devices: Sequence[Device],
    torch: str,
) -> tuple[Tuned, ...]:
    """One tuning for each model among the devices."""
    from kbuild.build.workspace import Workspace
    from kbuild.tune.crew import Setting
    from kbuild.tune.tuning import Tuning

    python, variant, ends = given
    space = Workspace(root, "tune")
    tuned = []
    with space.locked():
        setting = Setting(
            ctx.runner, python, variant, description.namespace, root, space.logs, ends
        )
        for model in dict.fromkeys(device.model for device in devices):
            alike = [device for device in devices if device.model == model]
            with ctx.ui.progress(f"tuning on {model[0]}", 0) as progress:
                tuning = Tuning(setting, description, alike, wish, torch, progress, space.root)
                tuned.append(tuning.perform())
    return tuple(tuned)


def _dry_run(args: Namespace, ctx: Context) -> int:
    """Say what would be measured."""
    from kbuild.cli.tune_report import summed
    from kbuild.tune.jobs import work_of

    variant = _named(args, ctx)
    if variant is None:
        raise UsageError("--dry-run looks at a variant", hint="name it: --variant DIR")
    description, wish = _asked(args, ctx, variant)
    works = work_of(description, None, wish.only, wish.cases)
    rows = [
        (work.op.name, str(launch), case.label, str(len(one.candidates)))
        for work in works
        for case in work.cases
        for launch, one in enumerate(work.op.launches)
    ]
    left_out = [(work.op.name, reason) for work in works for _, reason in work.left_out]
    for words in summed(left_out):
        ctx.ui.warn(words)
    if args.json:
        names = ("op", "launch", "case", "candidates")
        ctx.ui.data_json({"measurements": [dict(zip(names, row, strict=True)) for row in rows]})
    elif rows:
        ctx.ui.table(("op", "launch", "case", "candidates"), rows)
    count = sum(int(row[-1]) for row in rows)
    ctx.ui.say(f"{len(rows)} calls, {count} candidates to measure")
    return 0


def _report(args: Namespace, ctx: Context, tuned: Sequence[Tuned]) -> None:
    from kbuild.cli.tune_report import report

    if args.json:
        ctx.ui.data_json({"devices": [one.to_json() for one in tuned]})
    for one in tuned:
        report(one, ctx.ui, has_table=not args.json)
