"""`kbuild test`: the project's own tests against a built variant, as its users load it.

The tests run in a fresh process of the interpreter that the kernel was built for, in environments
with some releases of Torch, or on other machines, each variant where it fits.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import (
    add_python,
    add_variant,
    chosen_facts,
    find_variants,
)
from kbuild.pipeline.testing import (
    ALL_SKIPPED,
    CI_MARKER,
    NO_PYTEST,
    NO_TESTS,
    USAGE_ERROR,
    ProjectTests,
    TestProcess,
    TestReport,
    failure_lines,
    parse_junit,
)
from kbuild.project.variant import host_system, variant_named
from kbuild.system.emulator import Emulator, emulator_variable, find_emulator
from kbuild.system.errors import KbuildError, TestFailureError, ToolchainError, UsageError
from kbuild.system.services import Services
from kbuild.system.temporary import temporary_folder

if TYPE_CHECKING:
    from kbuild.plan.project import Project
    from kbuild.system.processes import ProcessResult
    from kbuild.toolchains.facts import Facts

_MAX_FAILURES_SHOWN = 20
Refusals = Mapping[str, Sequence[str]]
"""Variant -> the reason of each worker not to test it."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    add_python(parser, "runs the tests")
    parser.add_argument(
        "--torch",
        metavar="VERSIONS",
        help="test with each of these Torch versions, in environments that kbuild makes once: "
        "e.g. 2.11,2.13, or oldest,newest",
    )
    parser.add_argument(
        "--marked",
        action="store_true",
        help=f"only tests that are marked `{CI_MARKER}`, as a flake's `ci-test` does",
    )
    parser.add_argument(
        "--allow-skipped",
        action="store_true",
        help="succeed also if every test was skipped",
    )
    parser.add_argument(
        "--executor",
        metavar="ADDRESS",
        help="test variants on workers of a cluster that fit them (default: "
        "KBUILD_EXECUTOR, unless --python or --torch is given)",
    )
    add_json(parser)
    parser.set_defaults(rest=())
    parser.epilog = "Arguments after `--` are passed to pytest: kbuild test -- -k backward"


def execute(args: Namespace, ctx: Services) -> int:
    """Run the tests: against one variant here, or against every variant elsewhere.

    Raises:
        TestFailureError: a test did not pass, or there was none.
        ToolchainError: a variant could not be tested.
    """
    from kbuild.pipeline.executors import executor_address, find_executor
    from kbuild.plan.project import open_project

    _validate_combination(args)
    project = open_project(ctx.folder(args.kernel_dir))
    folders = find_variants(project.root, args.variant)
    hub = project.file.general.hub
    repo_id = (hub.repo_id if hub else None) or project.name
    tests = ProjectTests(
        project.python_name, repo_id, args.marked, tuple(args.rest), args.allow_skipped
    )
    if args.torch is not None:
        run = _TestRun(project, tests, folders, {})
        return _finish(_test_with_torch(args.torch, run, ctx), {}, args, ctx)
    address = executor_address("" if args.python and args.executor is None else args.executor)
    if address:
        executor, where = find_executor(address)
        # Only for its error, before workers are asked.
        tests.folder(project.root)
        reports, refusals = executor.run_tests(where, project.root, folders, tests, ctx)
        return _finish(reports, refusals, args, ctx)
    if args.variant and len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise UsageError(
            f"--variant matches several variants: {names}",
            hint="tests run against one variant; --executor tests all",
        )
    run = _TestRun(project, tests, folders, chosen_facts(args.python, ctx))
    return _test_here(run, args, ctx)


def _validate_combination(args: Namespace) -> None:
    if args.torch is not None and (args.python or args.executor):
        other = "--python" if args.python else "--executor"
        hint = "it makes environments of its own, on this machine"
        raise UsageError(f"--torch cannot be combined with {other}", hint=hint)
    if args.executor and args.python:
        hint = "leave one out: other machines have interpreters of their own"
        raise UsageError("--python names a program of this machine", hint=hint)


def _test_here(asked: _TestRun, args: Namespace, ctx: Services) -> int:
    """Run the tests against the one variant that fits this machine."""
    folders = asked.folders
    asked = replace(asked, emulator=_emulator_of(folders))
    if asked.emulator is None:
        _require_framework(asked)
    variant = folders[0] if len(folders) == 1 else _loaded_variant(asked, ctx)
    done = _run_pytest(asked, variant, ctx)
    _raise_on_failure(done, asked)
    if args.json:
        result_json = {
            "variants": [folder.name for folder in folders],
            "collected": True,
            "seconds": round(done.seconds, 3),
            "command": done.command,
        }
        ctx.ui.data_json(result_json)
    return 0


def _emulator_of(folders: Sequence[Path]) -> Emulator | None:
    """The emulator for the one variant that was chosen; None when this machine can load it.

    Raises:
        ToolchainError: it is for another system, and there is no emulator.
        UsageError: the variable of the emulator is wrong.
    """
    variant = variant_named(folders[0].name) if len(folders) == 1 else None
    if variant is None or variant.system in (None, host_system()):
        return None
    emulator = find_emulator(variant.system)
    if emulator is None:
        raise ToolchainError(
            f"{variant} is for {variant.system}; this machine is {host_system()}",
            hint=f"name an emulator in {emulator_variable(variant.system)}",
        )
    return emulator


def _test_with_torch(versions: str, asked: _TestRun, ctx: Services) -> list[TestReport]:
    """Run the tests with each version; none of them runs before there are all environments."""
    from kbuild.pipeline.test_environments import read_environments
    from kbuild.system.store import open_store
    from kbuild.toolchains.wheels.installer import WheelInstaller

    asked.tests.folder(asked.project.root)
    variants = {name: path for path in asked.folders if (name := variant_named(path.name))}
    environments = read_environments(versions, asked.project, variants, ctx.runner)
    installer = WheelInstaller(ctx.runner, open_store(ctx.cache), downloads=ctx.ui.downloads)
    with installer.store.in_use():
        runs, reports = [], []
        for environment in environments:
            with ctx.ui.step(f"environment with Torch {environment.torch}"):
                facts = chosen_facts(environment.provide(installer), ctx)
            run = replace(asked, folders=tuple(environment.variants.values()), facts=facts)
            variant = _loaded_variant(run, ctx)
            runs.append(replace(run, folders=(variant,)) if variant else run)
        for run in runs:
            torch = run.facts["torch"]["version"]
            with ctx.ui.step(f"tests with Torch {torch}"):
                report = _reported_run(run, ctx)
            reports.append(replace(report, torch=torch))
    return reports


def _finish(
    reports: Sequence[TestReport],
    refusals: Refusals,
    args: Namespace,
    ctx: Services,
) -> int:
    """Print the reports; the exit code."""
    _print_reports(reports, refusals, ctx, as_json=args.json)
    error = _error_of(reports, refusals)
    if error is not None and not args.json:
        raise error
    if error is not None:  # the answer is printed: a second one would make it no JSON
        ctx.ui.error(error)
    return error.code if error else 0


def _print_reports(
    reports: Sequence[TestReport], refusals: Refusals, ctx: Services, *, as_json: bool
) -> None:
    """Print the table or the JSON object, what failing tests printed, and what was not tested."""
    if as_json:
        untested = [{"variant": name, "reasons": whys} for name, whys in refusals.items()]
        variants = [report.to_json() for report in reports]
        ctx.ui.data_json({"variants": variants, "untested": untested})
    elif reports:
        headers = ("variant", "worker", "torch", "gpu", "passed", "failed", "skipped", "seconds")
        rows = [
            (
                *(report.variant, report.worker or "-", report.torch, report.device or "-"),
                *(str(report.counts[name]) for name in ("passed", "failed", "skipped")),
                f"{report.seconds:.1f}",
            )
            for report in reports
        ]
        ctx.ui.table(headers, rows)
    for report in reports:
        if not report.ok:
            ctx.ui.say(f"\n{report.variant} {report.place}:\n{report.output.rstrip()}")
    for name, whys in refusals.items():
        listed = "".join(f"\n    {why}" for why in whys)
        ctx.ui.warn(f"no worker fits {name}:{listed}")


def _error_of(reports: Sequence[TestReport], refusals: Refusals) -> KbuildError | None:
    failed = [report for report in reports if not report.ok]
    if failed:
        lines = [f"{r.variant} {r.place}: {line}" for r in failed for line in r.failures]
        listed = "".join(f"\n    {line}" for line in lines[:_MAX_FAILURES_SHOWN])
        return TestFailureError(f"tests failed:{listed}")
    if refusals:
        count = f"{len(refusals)} of {len(refusals) + len(reports)} variants were not tested"
        return ToolchainError(count, hint="start workers that fit, or select with --variant")
    return None


@dataclass(frozen=True)
class _TestRun:
    """The tests to run on this machine."""

    project: Project
    tests: ProjectTests
    folders: tuple[Path, ...]
    """The chosen variant, or all built ones."""
    facts: Facts
    emulator: Emulator | None = None

    @property
    def python(self) -> Path:
        own = Path(self.facts["python"]["executable"])
        return self.emulator.python if self.emulator else own


def _require_framework(asked: _TestRun) -> None:
    """Tell what the interpreter lacks before each test does.

    Raises:
        ToolchainError: it cannot load a compiled variant.
    """
    from kbuild.backends.frameworks import FRAMEWORKS
    from kbuild.toolchains.host import install_command

    variants = filter(None, (variant_named(folder.name) for folder in asked.folders))
    frameworks = [FRAMEWORKS.get(variant.framework) for variant in variants]
    needed = {one.runtime_module: one.runtime_package for one in frameworks if one.compiled}
    lacking = [package for module, package in needed.items() if not asked.facts[module]]
    if lacking:
        client = () if asked.facts["kernels"] else ("kernels",)
        has_pytest = Path(asked.facts["python"]["purelib"], "pytest").is_dir()
        runner = () if has_pytest else ("pytest",)
        install = install_command(asked.facts, *lacking, *client, *runner)
        raise ToolchainError(f"`{asked.python}` has no {' and no '.join(lacking)}", hint=install)


def _reported_run(asked: _TestRun, ctx: Services) -> TestReport:
    """The outcome of the tests with one Torch version."""
    with temporary_folder("junit") as folder:
        file = folder / "junit.xml"
        done = _run_pytest(asked, asked.folders[0], ctx, junit=file)
        suite = parse_junit(file.read_bytes()) if file.is_file() else None
    name = asked.folders[0].name
    return TestReport(name, done.returncode, done.output, done.seconds, suite)


def _run_pytest(
    asked: _TestRun, variant: Path | None, ctx: Services, *, junit: Path | None = None
) -> ProcessResult:
    # `repo=dir`: the folder of all variants, or the one variant that was chosen.
    place = asked.folders[0] if len(asked.folders) == 1 else asked.folders[0].parent
    process = TestProcess(
        ctx.runner,
        asked.python,
        os.environ,
        junit,
        before=asked.emulator.command if asked.emulator else (),
        # With a report, the output is shown at the end, and only that of tests that failed.
        listen=None if junit else ctx.ui.say,
    )
    done = process.run(asked.tests, asked.project.root, place, variant)
    ctx.ui.detail(f"{done.command} with LOCAL_KERNELS={asked.tests.repo_id}={place}")
    return done


def _loaded_variant(asked: _TestRun, ctx: Services) -> Path | None:
    """The variant that the interpreter's client takes; None where nobody can tell.

    Raises:
        ToolchainError: none of them fits.
    """
    from kbuild.pipeline.testing import check_compatibility

    names = [folder.name for folder in asked.folders]
    fit = check_compatibility(names, asked.python, ctx.runner)
    if fit.unknown:
        name = asked.project.python_name
        ctx.ui.warn(f"`import {name}` will find no variant: {fit.unknown}\n  hint: give --variant")
        return None
    if fit.chosen is None:
        reasons = "".join(f"\n    {name}: {reason}" for name, reason in fit.refused.items())
        raise ToolchainError(
            f"no built variant fits `{asked.python}`:{reasons}",
            hint="`kbuild build` builds one, or give --python",
        )
    return next(folder for folder in asked.folders if folder.name == fit.chosen)


def _raise_on_failure(done: ProcessResult, asked: _TestRun) -> None:
    if done.returncode == 0:
        return
    if done.returncode == NO_TESTS:
        # No test was collected, or none was left.
        folder = asked.tests.folder(asked.project.root)
        message = f"nothing was tested: pytest found no test in `{folder.name}`"
        hint = "write functions `test_...` in files `test_*.py`"
        if asked.tests.marked:
            message += f" that is marked `{CI_MARKER}`"
            hint = f"mark tests with `@pytest.mark.{CI_MARKER}`, or leave --marked out"
        if asked.tests.rest:
            hint = f"check `{' '.join(asked.tests.rest)}`, which pytest got; {hint}"
        raise TestFailureError(message, hint=hint)
    if done.returncode == ALL_SKIPPED:
        raise TestFailureError(
            "nothing was tested: every test was skipped",
            hint="`-- -rs` shows why; --allow-skipped accepts it",
        )
    if NO_PYTEST in done.output:
        from kbuild.toolchains.host import install_command

        client = () if asked.facts["kernels"] else ("kernels",)
        install = install_command(asked.facts, "pytest", *client)
        raise ToolchainError(f"`{asked.python}` has no pytest", hint=install)
    if done.returncode == USAGE_ERROR:
        raise UsageError("pytest rejected these arguments", hint="see its message above")
    listed = "".join(f"\n    {line}" for line in failure_lines(done.output)[:_MAX_FAILURES_SHOWN])
    raise TestFailureError(f"tests failed:{listed}", hint=f"the command was: {done.command}")
