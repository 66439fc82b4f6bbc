"""`kbuild bench`: measures the project's benchmarks on this machine, beside another build."""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import (
    HUB_PREFIX,
    add_python,
    add_variant,
    chosen_python,
    find_variants,
    target_hint,
)
from kbuild.system.errors import (
    KbuildError,
    RegressionError,
    TestFailureError,
    ToolchainError,
    UsageError,
)
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.dsl.bench.results import BenchmarkResults
    from kbuild.dsl.tune.host import AvailableDevices, Device, ProbeHost
    from kbuild.plan.project import Project


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    parser.add_argument(
        "--against",
        metavar="TARGET",
        help="build to compare with: a project, a folder of variants, a variant, or "
        "hub:OWNER/KERNEL@REVISION",
    )
    parser.add_argument(
        "--max-slowdown",
        metavar="PERCENT",
        help="fail if a workload is slower than the other build's by more, e.g. 5%%",
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
    add_json(parser)


def execute(args: Namespace, ctx: Services) -> int:
    """Measure, and show the results.

    Raises:
        TestFailureError: a workload cannot be measured, or its result is wrong.
        RegressionError: a workload takes longer than `--max-slowdown` allows.
    """
    from kbuild.cli.tune_build import build_for_devices
    from kbuild.dsl.bench.session import BenchmarkSession, find_scripts
    from kbuild.dsl.tune.host import ProbeHost
    from kbuild.plan.project import open_project
    from kbuild.system.workspace import Workspace

    threshold = _threshold(args)
    if args.processes < 1:
        raise UsageError("--processes must be at least 1")
    project = open_project(ctx.folder(args.kernel_dir))
    scripts = find_scripts(project.root)
    other = _find_other_build(args.against, ctx) if args.against else None
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
            sides["against"] = stack.enter_context(_other_variant(other, own.name, host, ctx))
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
    from kbuild.dsl.tune.host import CPU

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


@dataclass(frozen=True)
class _OtherBuild:
    """The build that `--against` names."""

    text: str
    variants: Sequence[str]
    folder: Path | None
    """Folder of the variants; None for those on the Hub."""


def _find_other_build(text: str, ctx: Services) -> _OtherBuild:
    """Find the build to compare with, before anything is built.

    Raises:
        UsageError: there is no such build, or it has no variants.
        KbuildError: the Hub cannot be reached.
    """
    if text.startswith(HUB_PREFIX):
        from kbuild.publish.hub.fetch import list_variants

        return _OtherBuild(text, list_variants(text), None)
    path = ctx.path(Path(text))
    if not path.is_dir():
        raise UsageError(f"`{text}` does not exist", hint=target_hint(text))
    folders = find_variants(path)
    return _OtherBuild(text, [folder.name for folder in folders], folders[0].parent)


@contextmanager
def _other_variant(other: _OtherBuild, own: str, host: ProbeHost, ctx: Services) -> Iterator[Path]:
    """The folder of the variant to compare with; one from the Hub is removed afterwards.

    It is the variant with the same name as `own`, else the only one, else the client's choice.

    Raises:
        UsageError: none of the variants fits.
    """
    from kbuild.pipeline.testing import check_compatibility

    name: str | None = own
    if own not in other.variants:
        alone = other.variants[0] if len(other.variants) == 1 else None
        name = alone or check_compatibility(other.variants, host.python, ctx.runner).chosen
    if name is None:
        names = ", ".join(other.variants)
        message = f"{other.text} has no variant for `{host.python}`"
        raise UsageError(message, hint=f"it has: {names}")
    if other.folder is not None:
        yield other.folder / name
        return
    from kbuild.publish.hub.fetch import BUILD, fetch_revision
    from kbuild.system.temporary import temporary_folder

    with temporary_folder("bench") as folder:
        ctx.ui.detail(f"fetching {name} of {other.text}")
        yield fetch_revision(other.text, folder, (name,)) / BUILD / name


def _build_name(variant: Path) -> str:
    """The tail of the id: which state of the source it is."""
    from kbuild.plan.metadata import MetadataError, read_metadata

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
    from kbuild.dsl.bench.results import limits_text, table_of
    from kbuild.system.files import replace_atomically

    if args.json:
        ctx.ui.data_json({**document, "error": error.to_json()} if error else document)
    elif results.measured:
        ctx.ui.table(*table_of(results))
    if results.limits.rates:
        ctx.ui.say(f"limits that were measured: {limits_text(results.limits)}")
    if args.output:
        text = json.dumps(document, indent=2, ensure_ascii=False)
        replace_atomically(ctx.path(args.output), f"{text}\n".encode())


def _failure(
    results: BenchmarkResults, threshold: float | None, ctx: Services
) -> KbuildError | None:
    """The error that the command ends with; None when it succeeds."""
    problems = list(results.problems())
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        return TestFailureError(f"benchmarks failed:{listed}")
    if threshold is None:
        return None
    from kbuild.dsl.bench.results import change_text

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
