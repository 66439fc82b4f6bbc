"""`kbuild bench`: measures the project's benchmarks on this machine, beside another build."""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import add_python, add_variant, chosen_python, find_variants
from kbuild.cli.versions import LOCATION_HELP
from kbuild.errors import (
    KbuildError,
    RegressionError,
    TestFailureError,
    ToolchainError,
    UsageError,
)
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.bench.results import BenchmarkResults
    from kbuild.project import Project
    from kbuild.tune.devices import AvailableDevices, Device
    from kbuild.tune.host import ProbeHost
    from kbuild.versions.sources import KernelVersion


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--against", metavar="WHERE", help=f"another build to compare with: {LOCATION_HELP}"
    )
    parser.add_argument(
        "--max-slowdown",
        metavar="PERCENT",
        help="fail if a workload takes so much longer than the other build's, e.g. 5%%",
    )
    parser.add_argument(
        "-k",
        "--keyword",
        dest="only",
        action="append",
        default=[],
        metavar="WORD",
        help="measure the workloads whose name contains WORD (repeatable)",
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="cuda:1, or cpu (default: the first GPU, else cpu)"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=3,
        metavar="N",
        help="processes that measure, one after another (default: 3)",
    )
    add_variant(parser)
    add_python(parser, "runs the kernel, and has Torch for the device")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the results as JSON into FILE"
    )
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the results as SVG")
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Measure, and show the results.

    Raises:
        TestFailureError: a workload cannot be measured, or its result is wrong.
        RegressionError: a workload takes longer than `--max-slowdown` allows.
    """
    from kbuild.bench.session import BenchmarkSession, find_scripts
    from kbuild.cli.tune_build import build_for_devices
    from kbuild.project import open_project
    from kbuild.runtime.workspace import Workspace
    from kbuild.tune.host import ProbeHost

    threshold = _threshold(args)
    if args.processes < 1:
        raise UsageError("--processes must be at least 1")
    project = open_project(ctx.folder(args.kernel_dir))
    scripts = find_scripts(project.root)
    other = _version(args.against, ctx) if args.against else None
    python = chosen_python(args.python, ctx)
    space = Workspace(project.root, "bench")
    space.prepare()
    with ExitStack() as stack:
        log = space.logs / "workers.txt"
        host = stack.enter_context(ProbeHost(ctx.runner, python, project.root, log))
        with ctx.ui.step(f"looking for devices with {python}"):
            detection = host.devices()
        device = chosen_device(args.device, project, detection)
        own = _named_variant(args, project) or build_for_devices(
            ctx, project.root, python, [device], purpose="bench"
        )
        sides = {"kernel": own}
        if other is not None:
            sides["against"] = stack.enter_context(_other_variant(*other, own.name, host, ctx))
        session = BenchmarkSession(
            host, project.root, scripts, sides, device.id, tuple(args.only), args.processes
        )
        stack.enter_context(space.locked(say=ctx.ui.say))
        with ctx.ui.progress(f"measuring on {device.name}", 0) as progress:
            results = session.perform(progress)
    digest = hashlib.sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()
    document = results.to_json(_build_name(own), digest)
    error = _failure(results, threshold, ctx)
    _report(args, ctx, results, document, error)
    if error is None:
        return 0
    if not args.json:
        raise error
    ctx.ui.error(error)
    return error.code


def _threshold(args: Namespace) -> float | None:
    """The share of `--max-slowdown`.

    Raises:
        UsageError: it is no percentage, or there is nothing to compare with.
    """
    if args.max_slowdown is None:
        return None
    try:
        percent = float(args.max_slowdown.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if percent < 0:
        hint = "write a percentage such as 5%"
        raise UsageError(f"--max-slowdown: `{args.max_slowdown}` is no percentage", hint=hint)
    if not args.against:
        raise UsageError("--max-slowdown needs another build", hint="name it with --against")
    return percent / 100


def chosen_device(name: str | None, project: Project, detection: AvailableDevices) -> Device:
    """The named device; else the first GPU that the project has variants for, else the CPU.

    Raises:
        ToolchainError: there is no such GPU, and the project has no variants for the CPU.
        UsageError: there is no device of that name.
    """
    from kbuild.tune.devices import CPU

    if name:
        return detection.chosen([name])[0]
    backends = {*project.file.general.backends}
    usable = (d for d in detection.devices if d.id != CPU and d.backend in backends)
    device = next(usable, None)
    if device is None and CPU not in backends:
        listed = ", ".join(project.file.general.backends)
        torch = detection.devices[0].torch
        message = f"{project.name} is for {listed}, and Torch {torch} finds no such device here"
        raise ToolchainError(message, hint="--python names an interpreter with another Torch")
    return device or detection.chosen([CPU])[0]


def _named_variant(args: Namespace, project: Project) -> Path | None:
    """The built variant that `--variant` selects.

    Raises:
        UsageError: it selects several.
    """
    if not args.variant:
        return None
    folders = find_variants(project.root, args.variant)
    if len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise UsageError(f"--variant matches several variants: {names}", hint="name one")
    return folders[0]


def _version(text: str, ctx: Services) -> tuple[KernelVersion, str]:
    """What is compared with, and its title; found before anything is built.

    Raises:
        UsageError: there is no such version.
    """
    from kbuild.cli.versions import find_versions

    return find_versions(text, ctx).single_version()


@contextmanager
def _other_variant(
    version: KernelVersion, title: str, own: str, host: ProbeHost, ctx: Services
) -> Iterator[Path]:
    """A copy of the variant with the same name, or of the only one, or of the client's choice.

    Raises:
        UsageError: none of its variants fits.
    """
    from kbuild.runtime.temporary import temporary_folder
    from kbuild.versions.compatibility import check_compatibility

    alone = version.variants[0] if len(version.variants) == 1 else None
    variant = own if own in version.variants else alone
    if variant is None:
        (fit,) = check_compatibility([version.variants], host.python, ctx.runner)
        variant = fit.chosen
    if variant is None:
        names = ", ".join(version.variants)
        raise UsageError(f"{title} has no variant for `{host.python}`", hint=f"it has: {names}")
    top = f"build/{variant}/"
    with temporary_folder("bench") as folder:
        for path in version.files:
            if path.startswith(top):
                file = folder / variant / path.removeprefix(top)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(version.read(path))
        yield folder / variant


def _build_name(variant: Path) -> str:
    """The tail of the id: which state of the source it is."""
    from kbuild.metadata import MetadataError, read_metadata

    try:
        return read_metadata(variant).id.rpartition("_")[2]
    except (OSError, MetadataError):
        return ""


def _report(
    args: Namespace,
    ctx: Services,
    results: BenchmarkResults,
    document: dict[str, object],
    error: KbuildError | None,
) -> None:
    from kbuild.bench.results import limits_text, table_of
    from kbuild.runtime.files import replace_atomically

    if args.json:
        ctx.ui.data_json({**document, "error": error.to_json()} if error else document)
    elif results.measured:
        ctx.ui.table(*table_of(results))
    if results.limits.rates:
        ctx.ui.say(f"limits that were measured: {limits_text(results.limits)}")
    if args.output:
        text = json.dumps(document, indent=2, ensure_ascii=False)
        replace_atomically(ctx.path(args.output), f"{text}\n".encode())
    if args.chart and results.measured:
        from kbuild.card.benchmarks import chart_svg, run_of

        run = run_of(document, args.chart.stem)
        kernel = ctx.folder(args.kernel_dir).name
        replace_atomically(ctx.path(args.chart), chart_svg(run, kernel).encode())


def _failure(
    results: BenchmarkResults, threshold: float | None, ctx: Services
) -> KbuildError | None:
    """Why the command fails; None when it does not."""
    problems = list(results.problems())
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        return TestFailureError(f"benchmarks failed:{listed}")
    if threshold is None:
        return None
    from kbuild.bench.results import change_text

    slower = list(results.slower(threshold))
    for workload, is_sure in slower:
        if not is_sure:
            ctx.ui.warn(
                f"{workload.name}: {change_text(workload)}: the times differ too much to tell "
                f"whether it is slower by {threshold:.1%}\n  hint: more --processes, or a quieter "
                "machine"
            )
    sure = [f"\n    {w.name}: {change_text(w)}" for w, is_sure in slower if is_sure]
    message = f"slower than --max-slowdown {threshold:.1%}:{''.join(sure)}"
    return RegressionError(message) if sure else None
