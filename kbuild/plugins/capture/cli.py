"""`kbuild capture`: describes ops that follow from Python that launches kernels."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.plugins.capture.programs import PATH_WALKED
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.services import Services

if TYPE_CHECKING:
    from kbuild.ops.section import DslSection
    from kbuild.plan.project import Project
    from kbuild.plugins.capture.description import Declaration
    from kbuild.plugins.capture.function_digests import SourceDigests
    from kbuild.plugins.capture.launches import CapturedLaunches
    from kbuild.plugins.capture.reader import KernelReader
    from kbuild.plugins.capture.wrappers import CapturedWrapper
    from kbuild.system.progress import Progress

_RECORD = "kbuild capture --record -- COMMAND"
_WIDTH = 160
"""Characters that describe a path."""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--show",
        action="store_true",
        help="print the captured ops with their paths, launches and constants",
    )
    modes.add_argument(
        "--record",
        action="store_true",
        help="run the command behind `--`, and add its launches to captured/*.json",
    )
    modes.add_argument(
        "--check",
        action="store_true",
        help="fail if a function or kernel has changed since it was captured",
    )
    modes.add_argument(
        "--coverage",
        action="store_true",
        help="run the command behind `--` with packages that kbuild has built, list the images "
        "that it calls and those that it does not, and fail if a call has no image",
    )
    modes.add_argument(
        "--package",
        action="store_true",
        help="rewrite build.toml of a Python-only project, so that its launches are compiled",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="only this captured function; can be repeated",
    )
    parser.add_argument(
        "--all-configs", action="store_true", help="record every candidate of autotuned kernels"
    )
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="record launches without running the kernels, which needs no GPU",
    )
    parser.add_argument(
        "--replace", action="store_true", help="forget the launches that were recorded before"
    )
    add_json(parser)
    parser.set_defaults(rest=())
    parser.epilog = "The command follows `--`: kbuild capture --record -- pytest tests"


def execute(args: Namespace, ctx: Services) -> int:
    """Capture functions, record launches, check either, run a program, or prepare the project.

    Raises:
        UsageError: no section captures launches, or no command is given.
        CheckError: the command failed, or launches are missing or out of date.
    """
    from kbuild.plan.project import open_project
    from kbuild.plugins.capture.show import show_captured

    if args.coverage:
        from kbuild.plugins.capture.coverage import cover

        return cover(args, ctx)
    if args.package:
        from kbuild.plugins.capture.launch_package import package_captured

        return package_captured(args, ctx)
    project = open_project(ctx.folder(args.kernel_dir))
    functions = _selected(list(declarations(project)), args.name)
    if not args.record and not args.check:
        if not functions:
            hint = "add a `[[kernel.<name>.capture]]` table with `function`, or use --record"
            raise UsageError("no kernel of this project captures a function", hint=hint)
        return (show_captured if args.show else _capture)(project, functions, args, ctx)
    sections = {
        name: project.dsl_sections[name][0]
        for name, kernel in _kernels(project).items()
        if kernel.launch_tables
    }
    if not sections and not (args.check and functions):
        hint = "add a `[[kernel.<name>.capture]]` table with `launches`"
        raise UsageError("no kernel of this project captures launches", hint=hint)
    return (_check if args.check else _record)(project, sections, args, ctx)


def _kernels(project: Project) -> Mapping[str, KernelReader]:
    """The kernels that have `capture` tables, with what the reader found in these."""
    from kbuild.plugins.capture.reader import KEY, CaptureReading

    reading = project.plugin_readings.get(KEY)
    return reading.kernels if isinstance(reading, CaptureReading) else {}


def declarations(project: Project) -> Iterator[tuple[str, DslSection, Declaration]]:
    """Every function that is captured whole, with its kernel and the section of that."""
    for name, kernel in _kernels(project).items():
        for declaration in kernel.declarations:
            yield name, project.dsl_sections[name][0], declaration


def _selected(
    functions: list[tuple[str, DslSection, Declaration]], names: Sequence[str]
) -> list[tuple[str, DslSection, Declaration]]:
    known = [declaration.name for _, _, declaration in functions]
    for name in names:
        if name not in known:
            hint = f"captured functions: {', '.join(known)}" if known else ""
            raise UsageError(f"no captured function is called `{name}`", hint=hint)
    return [item for item in functions if not names or item[2].name in names]


def _capture(
    project: Project,
    functions: Sequence[tuple[str, DslSection, Declaration]],
    args: Namespace,
    ctx: Services,
) -> int:
    """Run each function symbolically, and write what it does.

    Raises:
        CheckError: some were not captured; the others are written.
    """
    from concurrent.futures import ThreadPoolExecutor

    from kbuild.dsl.environment import DslEnvironments
    from kbuild.plugins.capture.session import capture
    from kbuild.system.store import open_store
    from kbuild.toolchains.wheels.installer import WheelInstaller

    environments = DslEnvironments(
        WheelInstaller(ctx.runner, open_store(ctx.cache), downloads=ctx.ui.downloads)
    )

    torch = None if find_spec("torch") else _torch_packages(ctx)
    answer, errors = [], []
    with (
        ctx.ui.progress("capturing", len(functions)) as progress,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        view = CaptureProgress(progress, ctx.ui.say, len(functions))

        def captured(
            function: tuple[str, DslSection, Declaration],
        ) -> tuple[CapturedWrapper, tuple[str, ...]] | CheckError:
            _, section, declaration = function
            listen = partial(view.take, declaration.name)
            try:
                return capture(
                    declaration, project.root, section, environments, ctx.runner,
                    listen=listen, torch=torch,
                )  # fmt: skip
            except CheckError as error:
                return error
            finally:
                view.finish(declaration.name)

        try:
            for function, result in zip(functions, pool.map(captured, functions), strict=True):
                if isinstance(result, CheckError):
                    errors.append(result)
                else:
                    answer.append(_write(project, function, *result, ctx))
        except BaseException:
            ctx.runner.stop()  # the pool would wait for the workers
            raise
    _raise_together(errors)
    if args.json:
        ctx.ui.data_json({"captured": answer})
    return 0


def _raise_together(errors: Sequence[CheckError]) -> None:
    """Raise the errors of all functions, as one if there are several."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        messages = "\n".join(str(error) for error in errors)  # each with its hint
        raise CheckError(messages, [{"message": str(error)} for error in errors])


class CaptureProgress:
    """Says each path of the functions that are captured, and shows how many are done."""

    def __init__(self, progress: Progress, say: Callable[[str], None], total: int) -> None:
        self._progress, self._say, self._total, self._done = progress, say, total, 0
        self._paths: Counter[str] = Counter()

    def take(self, name: str, line: str) -> None:
        """A line of the worker of a function."""
        if line.startswith(PATH_WALKED):
            self._paths[name] += 1
            path = shorten(line.removeprefix(PATH_WALKED), _WIDTH, placeholder=" ...")
            self._say(f"{name}: path {self._paths[name]}: {path}")

    def finish(self, name: str) -> None:
        """A function is captured, or cannot be."""
        self._done += 1
        self._progress.update(self._done, self._total, name)


def _torch_packages(ctx: Services) -> Path | None:
    """The folder with the Torch of the interpreter that builds use, if its Python is this one's."""
    from kbuild.cli.variants import chosen_facts

    facts = chosen_facts(None, ctx)
    is_same = facts["python"]["version"].split(".")[:2] == [*map(str, sys.version_info[:2])]
    return Path(facts["torch"]["root"]).parent if is_same and facts["torch"] else None


def _write(
    project: Project,
    function: tuple[str, DslSection, Declaration],
    wrapper: CapturedWrapper,
    notes: Sequence[str],
    ctx: Services,
) -> dict[str, Any]:
    """Write the description of a function, and say what it has."""
    from kbuild.plugins.capture.session import write_capture
    from kbuild.plugins.capture.show import gradient_text, gradients

    file, content = write_capture(project.root, function, wrapper, notes)
    for note in notes:
        ctx.ui.warn(f"{file}: {note}")
    launches = sum("function" in step for op in content["ops"] for step in op["launch"])
    counts = f"{launches} launches in {len(content['ops'])} ops"
    ctx.ui.say(f"{file}: {wrapper.schema}, {counts}, {gradient_text(content)}")
    return {
        "file": file,
        "schema": wrapper.schema,
        "launches": launches,
        "gradients": gradients(content),
    }


def _texts(project: Project, section: DslSection) -> SourceDigests:
    from kbuild.plugins.capture.function_digests import SourceDigests

    return SourceDigests(
        {path: (project.root / path).read_text("utf-8", "replace") for path in section.sources}
    )


def _captured(project: Project, name: str) -> CapturedLaunches:
    from kbuild.plugins.capture.launches import CapturedLaunches, captured_file, parse_captured

    path = project.root / captured_file(name)
    if not path.is_file():
        return CapturedLaunches()
    return parse_captured(path.read_text("utf-8"), captured_file(name))


def _check(
    project: Project, sections: Mapping[str, DslSection], args: Namespace, ctx: Services
) -> int:
    from kbuild.plugins.capture.launches import captured_file

    functions = _selected(list(declarations(project)), args.name)
    problems = list(_stale_descriptions(project, functions))
    for name, section in sections.items():
        file, texts = captured_file(name), _texts(project, section)
        captured = _captured(project, name)
        if not captured.functions:
            problems.append(f"{file}: has no launches")
        for function in captured.functions:
            digest = texts.of(function.source, function.name)
            if not digest:
                problems.append(f"{file}: `{function.name}` is gone from {function.source}")
            elif digest != function.digest:
                message = f"`{function.name}` in {function.source} has changed"
                problems.append(f"{file}: {message} since its launches were captured")
    if problems:
        findings = [{"message": problem} for problem in problems]
        hint = f"run `{_RECORD}`" if sections else "run `kbuild capture`"
        hint = f"{hint}, and commit the files"
        raise CheckError("\n".join(problems), findings, hint=hint)
    if args.json:
        ctx.ui.data_json({"problems": []})
    ctx.ui.say("everything that was captured is of these sources")
    return 0


def _stale_descriptions(
    project: Project, functions: Sequence[tuple[str, DslSection, Declaration]]
) -> Iterator[str]:
    from kbuild.plugins.capture.description import read_description, staleness, wrapper_file

    for name, section, declaration in functions:
        file = wrapper_file(name, declaration.name)
        path = project.root / file
        if not path.is_file():
            yield f"{file}: does not exist"
            continue
        description = read_description(path.read_text("utf-8"), file)
        if reason := staleness(declaration, description, _texts(project, section)):
            yield f"{file}: {reason}"


def _record(
    project: Project, sections: Mapping[str, DslSection], args: Namespace, ctx: Services
) -> int:
    from kbuild.ops.language import LANGUAGES
    from kbuild.plugins.capture.launch_package import compiled_archs, recorded_launches
    from kbuild.plugins.capture.launches import CapturedLaunches, captured_file
    from kbuild.system.files import replace_atomically

    if not args.rest:
        raise UsageError("--record needs a command", hint="kbuild capture --record -- pytest tests")
    recorded, problems = recorded_launches(
        args.rest,
        project.root,
        LANGUAGES.get(next(iter(sections.values())).language),
        [path for section in sections.values() for path in section.sources],
        ctx.runner,
        ctx.ui.say,
        all_configs=args.all_configs,
        run_kernels=not args.no_run,
        archs=compiled_archs(sections.values()) if args.no_run else (),
        watched=[kernel.watched for kernel in _kernels(project).values()],
    )
    for problem in problems:
        ctx.ui.warn(problem)
    answer = []
    for name, section in sections.items():
        texts = _texts(project, section)
        functions = [
            function.model_copy(update={"digest": texts.of(function.source, function.name)})
            for function in recorded
            if function.source in section.sources
        ]
        before = CapturedLaunches() if args.replace else _captured(project, name)
        after = before.merged(functions)
        launches = sum(len(function.launches) for function in after.functions)
        more = launches - sum(len(function.launches) for function in before.functions)
        if not launches:
            hint = "the command has to import the files in `src`, and to launch their kernels"
            raise CheckError(f"the command launched no kernel of kernel.{name}", (), hint=hint)
        file = captured_file(name)
        replace_atomically(project.root / file, after.text().encode())
        ctx.ui.say(f"{file}: {launches} launches of {len(after.functions)} kernels, {more} new")
        answer.append({"file": file, "launches": launches, "new": more})
    if args.json:
        ctx.ui.data_json({"captured": answer, "problems": list(problems)})
    return 0
