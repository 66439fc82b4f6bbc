"""`kbuild capture`: describes ops that follow from Python that launches kernels."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import CheckError, UsageError
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.capture.description import Declaration
    from kbuild.capture.wrappers import CapturedWrapper
    from kbuild.config.file_model import LanguageSection
    from kbuild.languages.base import Language
    from kbuild.ops.captured_launches import CapturedLaunches
    from kbuild.ops.function_digests import SourceDigests
    from kbuild.project import Project

_RECORD = "kbuild capture --record -- COMMAND"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--show",
        action="store_true",
        help="print the ops of the captured functions, their paths, launches and constants",
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
        "--package",
        action="store_true",
        help="rewrite the build.toml of a Python-only project, so that its launches are compiled",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="only this captured function; can be repeated",
    )
    parser.add_argument(
        "--all-configs",
        action="store_true",
        help="record every candidate of autotuned kernels, not only the first and the fastest",
    )
    parser.add_argument(
        "--no-run",
        action="store_true",
        help="record launches without running the kernels, which needs no GPU; their results are"
        " not computed",
    )
    parser.add_argument(
        "--replace", action="store_true", help="forget the launches that were recorded before"
    )
    add_json(parser)
    parser.set_defaults(rest=())
    parser.epilog = "The command follows `--`: kbuild capture --record -- pytest tests"


def execute(args: Namespace, ctx: Services) -> int:
    """Capture functions, record launches, check either, or prepare the project.

    Raises:
        UsageError: no section captures launches, or no command is given.
        CheckError: the command failed, or launches are missing or out of date.
    """
    from kbuild.project import open_project

    if args.package:
        return _package(args, ctx)
    project = open_project(ctx.folder(args.kernel_dir))
    functions = _selected(list(declarations(project)), args.name)
    if not args.record and not args.check:
        if not functions:
            hint = "add a `[[kernel.<name>.capture]]` table with `function`, or use --record"
            raise UsageError("no kernel of this project captures a function", hint=hint)
        return (_show if args.show else _capture)(project, functions, args, ctx)
    sections = {
        name: section
        for name, section in project.dsl_kernels.items()
        if any(capture.launches for capture in section.capture)
    }
    if not sections and not (args.check and functions):
        hint = "add a `[[kernel.<name>.capture]]` table with `launches`"
        raise UsageError("no kernel of this project captures launches", hint=hint)
    return (_check if args.check else _record)(project, sections, args, ctx)


def declarations(project: Project) -> Iterator[tuple[str, LanguageSection, Declaration]]:
    """Every function that is captured whole, with its section."""
    from kbuild.capture.description import read_declaration
    from kbuild.config.load import locate_issues
    from kbuild.errors import ConfigError
    from kbuild.ops.model import IssueCollector
    from kbuild.sourcetree import SourceTree

    for name, section in project.dsl_kernels.items():
        for index, table in enumerate(section.as_written().get("capture", ())):
            if "function" in table:
                place = IssueCollector(("kernel", name, "capture", index))
                declaration = read_declaration(table, place.path, place)
                if declaration is None:
                    raise ConfigError(locate_issues(place.issues, SourceTree(project.root)))
                yield name, section, declaration


def _selected(
    functions: list[tuple[str, LanguageSection, Declaration]], names: Sequence[str]
) -> list[tuple[str, LanguageSection, Declaration]]:
    known = [declaration.name for _, _, declaration in functions]
    for name in names:
        if name not in known:
            hint = f"captured functions: {', '.join(known)}" if known else ""
            raise UsageError(f"no captured function is called `{name}`", hint=hint)
    return [item for item in functions if not names or item[2].name in names]


def _capture(
    project: Project,
    functions: Sequence[tuple[str, LanguageSection, Declaration]],
    args: Namespace,
    ctx: Services,
) -> int:
    """Run each function symbolically, and write what it does.

    Raises:
        CheckError: some were not captured; the others are written.
    """
    from concurrent.futures import ThreadPoolExecutor

    from kbuild.languages.capture import capture
    from kbuild.languages.environment import DslEnvironments
    from kbuild.store import open_store
    from kbuild.toolchains.wheels.installer import WheelInstaller

    environments = DslEnvironments(
        WheelInstaller(ctx.runner, open_store(ctx.cache), say=ctx.ui.say)
    )

    def captured(
        function: tuple[str, LanguageSection, Declaration],
    ) -> tuple[CapturedWrapper, tuple[str, ...]] | CheckError:
        _, section, declaration = function
        try:
            return capture(declaration, project.root, section, environments, ctx.runner)
        except CheckError as error:
            return error

    answer, errors = [], []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for function, result in zip(functions, pool.map(captured, functions), strict=True):
            if isinstance(result, CheckError):
                errors.append(result)
            else:
                answer.append(_write(project, function, *result, ctx))
    if errors:
        if len(errors) == 1:
            raise errors[0]
        messages = "\n".join(str(error) for error in errors)  # each with its hint
        raise CheckError(messages, [{"message": str(error)} for error in errors])
    if args.json:
        ctx.ui.data_json({"captured": answer})
    return 0


def _write(
    project: Project,
    function: tuple[str, LanguageSection, Declaration],
    wrapper: CapturedWrapper,
    notes: Sequence[str],
    ctx: Services,
) -> dict[str, Any]:
    """Write the description of a function, and say what it has."""
    from kbuild.capture.show import gradient_text, gradients
    from kbuild.languages.capture import write_capture

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


def _show(
    project: Project,
    functions: Sequence[tuple[str, LanguageSection, Declaration]],
    args: Namespace,
    ctx: Services,
) -> int:
    """Print what was captured."""
    from kbuild.capture.description import read_description, wrapper_file
    from kbuild.capture.show import shown

    descriptions, lines = [], list[str]()
    for name, section, declaration in functions:
        file = wrapper_file(name, declaration.name)
        path = project.root / file
        if not path.is_file():
            raise UsageError(f"`{file}` does not exist", hint="run `kbuild capture`")
        description = read_description(path.read_text("utf-8"), file)
        descriptions.append(description)
        lines += shown(description, _image_counts(project, name, section, description))
    if args.json:
        ctx.ui.data_json({"captured": descriptions})
    else:
        ctx.ui.data("\n".join(lines) + "\n")
    return 0


def _image_counts(
    project: Project, name: str, section: LanguageSection, description: Mapping[str, Any]
) -> Mapping[str, int | None]:
    """Op -> how many images it has for one arch."""
    from kbuild.languages.candidates import planned_image_counts
    from kbuild.languages.capture import captured_section

    kernel = captured_section(name, section, description["ops"], description["name"])
    return planned_image_counts(kernel, project.root)


def _texts(project: Project, section: LanguageSection) -> SourceDigests:
    from kbuild.ops.function_digests import SourceDigests

    return SourceDigests(
        {path: (project.root / path).read_text("utf-8", "replace") for path in section.src}
    )


def _captured(project: Project, name: str) -> CapturedLaunches:
    from kbuild.ops.captured_launches import CapturedLaunches, captured_file, parse_captured

    path = project.root / captured_file(name)
    if not path.is_file():
        return CapturedLaunches()
    return parse_captured(path.read_text("utf-8"), captured_file(name))


def _check(
    project: Project, sections: Mapping[str, LanguageSection], args: Namespace, ctx: Services
) -> int:
    from kbuild.ops.captured_launches import captured_file

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
    if args.json:
        ctx.ui.data_json({"problems": problems})
    if problems:
        findings = [{"message": problem} for problem in problems]
        hint = f"run `{_RECORD}`" if sections else "run `kbuild capture`"
        hint = f"{hint}, and commit the files"
        raise CheckError("\n".join(problems), findings, hint=hint)
    ctx.ui.say("everything that was captured is of these sources")
    return 0


def _stale_descriptions(
    project: Project, functions: Sequence[tuple[str, LanguageSection, Declaration]]
) -> Iterator[str]:
    from kbuild.capture.description import read_description, staleness, wrapper_file

    for name, section, declaration in functions:
        file = wrapper_file(name, declaration.name)
        path = project.root / file
        if not path.is_file():
            yield f"{file}: does not exist"
            continue
        texts = {source: (project.root / source).read_text("utf-8") for source in section.src}
        description = read_description(path.read_text("utf-8"), file)
        if reason := staleness(declaration, description, texts):
            yield f"{file}: {reason}"


def _record(
    project: Project, sections: Mapping[str, LanguageSection], args: Namespace, ctx: Services
) -> int:
    from kbuild.languages.recording import recorded_launches
    from kbuild.ops.captured_launches import CapturedLaunches, captured_file
    from kbuild.runtime.files import replace_atomically

    if not args.rest:
        raise UsageError("--record needs a command", hint="kbuild capture --record -- pytest tests")
    recorded, problems = recorded_launches(
        args.rest,
        project.root,
        _language(next(iter(sections.values())).language),
        [path for section in sections.values() for path in section.src],
        ctx.runner,
        ctx.ui.say,
        all_configs=args.all_configs,
        run_kernels=not args.no_run,
    )
    for problem in problems:
        ctx.ui.warn(problem)
    answer = []
    for name, section in sections.items():
        texts = _texts(project, section)
        functions = [
            function.with_digest(texts.of(function.source, function.name))
            for function in recorded
            if function.source in section.src
        ]
        before = CapturedLaunches() if args.replace else _captured(project, name)
        after = before.merged(functions)
        launches = sum(len(function.launches) for function in after.functions)
        more = launches - sum(len(function.launches) for function in before.functions)
        if not after.functions:
            hint = "the command has to import the files in `src`, and to launch their kernels"
            raise CheckError(f"the command launched no kernel of kernel.{name}", (), hint=hint)
        file = captured_file(name)
        replace_atomically(project.root / file, after.text().encode())
        ctx.ui.say(f"{file}: {launches} launches of {len(after.functions)} kernels, {more} new")
        answer.append({"file": file, "launches": launches, "new": more})
    if args.json:
        ctx.ui.data_json({"captured": answer, "problems": list(problems)})
    return 0


def _language(name: str = "") -> Language:
    """A language by its name, or the first one whose launches can be captured."""
    from kbuild.languages.base import LANGUAGES

    return LANGUAGES.get(name) if name else next(x for x in LANGUAGES.load() if x.launch_runtime)


def _package(args: Namespace, ctx: Services) -> int:
    """Rewrite the build.toml of a Python-only project."""
    from kbuild.project import BUILD_FILE, open_project
    from kbuild.runtime.files import replace_atomically

    project = open_project(ctx.folder(args.kernel_dir))
    path = project.root / BUILD_FILE
    text = path.read_text("utf-8")
    replace_atomically(path, _captured_build_file(text, project.python_name).encode())
    try:
        open_project(project.root)
    except BaseException:
        replace_atomically(path, text.encode())
        raise
    if args.json:
        ctx.ui.data_json({"file": BUILD_FILE})
    ctx.ui.say(f"{BUILD_FILE} compiles the launches of torch-ext/{project.python_name}")
    ctx.ui.say(f"next: `{_RECORD}`, then `kbuild build`")
    return 0


def _captured_build_file(text: str, package: str) -> str:
    """A build.toml whose Python package has its launches compiled.

    Raises:
        UsageError: it is not that of a Python-only project for backends of the language.
    """
    import tomlkit

    language, document = _language(), tomlkit.parse(text)
    exporter, data = language.exporter(), document.unwrap()
    backends = [
        name
        for name in data.get("general", {}).get("backends", ())
        if name in language.init_backends
    ]
    if "torch-noarch" not in document or not backends:
        known = " or ".join(language.init_backends)
        message = f"--package takes a project with `[torch-noarch]` for {known}"
        hint = "write a `[kernel.<name>]` section with `capture` yourself"
        raise UsageError(message, hint=hint)
    del document["torch-noarch"]
    document["general"]["backends"] = backends
    document.add("torch", tomlkit.table())
    section = {
        "backend": backends,
        "language": language.name,
        "toolchain": exporter.pin if exporter else "",
        "src": [f"torch-ext/{package}/**/*.py"],
        "capture": [{"launches": [package, f"{package}.*"]}],
    }
    document.add("kernel", tomlkit.item({package: section}))
    return tomlkit.dumps(document)
