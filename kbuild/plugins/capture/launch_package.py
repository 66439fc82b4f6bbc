"""Launches that are compiled in an author's Python: its package, `--record` and `--package`.

The author's files lie in `_captured_sources` as they are. In the place of each, a module of the
package runs it with the runtime of `CapturedLanguage` where it imports the DSL.
"""

from __future__ import annotations

import json
import os
import pprint
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from kbuild.ops.language import Language
from kbuild.ops.section import DslSection
from kbuild.plugins.capture.languages import LAUNCH_LANGUAGE, captured_language
from kbuild.plugins.capture.launches import (
    CapturedFunction,
    CapturedLaunch,
    module_of,
    packaged_module,
)
from kbuild.project.config.section_readers import PackageFiles
from kbuild.system.errors import CheckError, UsageError
from kbuild.system.processes import Runner
from kbuild.system.services import Services
from kbuild.system.temporary import temporary_folder

SOURCES_FOLDER = "_captured_sources"
"""Folder of a package with the author's files."""
_LAUNCHES = '''\
"""Runs the author's files with the launches that were compiled ahead of time. Written by kbuild."""

from ._launch_runtime import Package
from ._launch_table import TABLE
from ._ops import ops

execute = Package(__package__, ops, TABLE).execute
'''
_TABLE = '''\
"""The launches that were compiled ahead of time. Written by kbuild."""

# fmt: off
TABLE = {}
'''
_MODULE = '''\
"""`{source}`, with its launches compiled ahead of time. Written by kbuild."""

from {dots}_launches import execute as _kbuild_execute

_kbuild_execute(__name__, "{shipped}")
'''


@dataclass(frozen=True)
class LaunchKernel:
    """A kernel whose launches are captured, for the package."""

    language: Language
    toolchain: tuple[str, ...]
    sources: tuple[str, ...]
    """The author's files, relative to the project."""
    functions: tuple[Mapping[str, Any], ...]
    """The kernel functions with their launches, each with its `op` and `form`."""
    has_jit: bool
    """True where launches that were not compiled run the DSL."""
    watched: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`factories` and `tuners` of the `capture` tables."""

    @property
    def version(self) -> str:
        """The pinned version of the DSL."""
        name = self.language.distributions[0]
        pins = (pin.partition("==") for pin in self.toolchain)
        return next(version for distribution, _, version in pins if distribution == name)


def launch_files(kernels: Sequence[LaunchKernel], folder: str) -> PackageFiles:
    """The author's files and what runs them; nothing for no kernels.

    `folder` is the package's folder in the project, such as `torch-ext/my_ops`.
    """
    if not kernels:
        return PackageFiles()
    targets = {
        source: packaged_module(source, folder) for kernel in kernels for source in kernel.sources
    }
    table = pprint.pformat(_table(kernels, targets), width=100, compact=True, sort_dicts=False)
    texts = {"_launches.py": _LAUNCHES, "_launch_table.py": _TABLE.format(table)}
    for source, target in targets.items():
        dots = "." * len(PurePosixPath(target).parts)
        texts[target] = _MODULE.format(source=source, dots=dots, shipped=target)
    runtime = captured_language(kernels[0].language.name).runtime
    own = sorted(runtime.glob("_launch_*.py")) if runtime is not None else ()
    for path in (Path(__file__).with_name("_launch_sources.py"), *own):
        texts[path.name] = path.read_text("utf-8")
    sources = {f"{SOURCES_FOLDER}/{target}": source for source, target in targets.items()}
    return PackageFiles(texts, sources)


def _table(kernels: Sequence[LaunchKernel], targets: Mapping[str, str]) -> dict[str, Any]:
    return {
        "version": kernels[0].version,
        "replaced": captured_language(kernels[0].language.name).replaced,
        **_merged(kernel.watched for kernel in kernels),
        "functions": [function for kernel in kernels for function in kernel.functions],
        "modules": {module_of(source): _relative(target) for source, target in targets.items()},
        "sources": {target: source for source, target in targets.items()},
        "jit": sorted(
            {source for kernel in kernels if kernel.has_jit for source in kernel.sources}
        ),
    }


def _merged(watched: Iterable[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    names: dict[str, set[str]] = {}
    for each in watched:
        for key, own in each.items():
            names.setdefault(key, set()).update(own)
    return {key: sorted(own) for key, own in names.items() if own}


def _relative(target: str) -> str:
    return f".{target.removesuffix('.py').removesuffix('__init__').strip('/').replace('/', '.')}"


def compiled_archs(sections: Iterable[DslSection]) -> list[str]:
    """The archs, such as `sm_90a`, for each of which a command is recorded.

    None for languages whose launches do not depend on the arch.
    """
    from kbuild.ops.language import LANGUAGES

    archs: dict[str, None] = {}
    for section in sections:
        if not captured_language(section.language).arch_variable:
            continue
        backends, wanted = section.table["backend"], section.table.get("cuda-capabilities")
        for backend in [backends] if isinstance(backends, str) else backends:
            language = LANGUAGES.get(section.language)
            targets = language.targets(backend, wanted, None, section.toolchain).targets
            archs |= dict.fromkeys(target.arch for target in targets)
    return list(archs)


def recorded_launches(  # noqa: PLR0917
    command: Sequence[str],
    root: Path,
    language: Language,
    sources: Sequence[str],
    runner: Runner,
    say: Callable[[str], None],
    *,
    all_configs: bool,
    run_kernels: bool,
    archs: Sequence[str] = (),
    watched: Iterable[Mapping[str, Sequence[str]]] = (),
) -> tuple[list[CapturedFunction], list[str]]:
    """The launches of a command, and sentences about those that cannot be compiled.

    Args:
        command: with its arguments.
        root: the project, in which it runs.
        language: of the kernels.
        sources: whose kernels count, below `root`.
        runner: runs it.
        say: gets its output.
        all_configs: whether each candidate of an autotuned kernel is recorded.
        run_kernels: whether kernels run; without, their results are not computed.
        archs: archs to run the command for, one after the other, such as `sm_90a`; none to run
            it once, for the GPU at hand or for all.
        watched: `LaunchKernel.watched` of the kernels.

    Raises:
        CheckError: the command failed.
    """
    # The recorder resolves links in the paths of modules before it compares them.
    places = {os.path.realpath(root / path): path for path in sources}
    with temporary_folder("record") as folder:
        own, answers = folder / "site", folder / "lines"
        own.mkdir()
        answers.mkdir()
        options = {"options": sorted(language.options), "all_configs": all_configs}
        settings = {"sources": places, "folder": str(answers), **options, "run": run_kernels}
        settings |= _merged(watched)
        env = _recorder_environment(own, language, settings)
        variable = captured_language(language.name).arch_variable
        environments = [{**env, variable: arch} for arch in archs] or [env]
        runs = [runner.run(command, cwd=root, env=each, listen=say) for each in environments]
        lines = [
            json.loads(line)
            for path in sorted(answers.iterdir())
            for line in path.read_text("utf-8").splitlines()
        ]
    failed = [done.returncode for done in runs if done.returncode != 0]
    if failed:
        message = f"`{' '.join(command)}` failed with exit code {failed[0]}"
        raise CheckError(message, (), hint="nothing was written; the command has to succeed")
    problems = [
        f"`{line['function']}` of {line['source']} {line['problem']}: that launch is left out"
        for line in lines
        if "problem" in line
    ]
    return list(_functions(lines, problems)), list(dict.fromkeys(problems))


def _recorder_environment(
    folder: Path, language: Language, settings: Mapping[str, Any]
) -> dict[str, str]:
    """Write the recorder into a folder; return the environment in which Python runs it."""
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    # Python imports `sitecustomize` whenever it starts, also in processes of the command.
    for at, file in enumerate(captured_language(language.name).recorder):
        (folder / (file.name if at else "sitecustomize.py")).write_bytes(file.read_bytes())
    paths = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _functions(
    lines: Sequence[Mapping[str, Any]], problems: list[str]
) -> Iterator[CapturedFunction]:
    for line in lines:
        source, name = str(line["source"]), str(line["function"])
        if "tuned" in line:
            yield CapturedFunction(
                source=source, function=name, launches=(), tuned=(line["tuned"],)
            )
        elif "problem" not in line:
            try:
                launch = CapturedLaunch.model_validate(line)
            except ValidationError as error:
                reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                problems.append(f"`{name}` of {source}: {reason}: that launch is left out")
            else:
                yield CapturedFunction(source=source, function=name, launches=(launch,))


def package_captured(args: Namespace, ctx: Services) -> int:
    """Rewrite the build.toml of a Python-only project."""
    from kbuild.plan.project import BUILD_FILE, open_project
    from kbuild.system.files import replace_atomically

    project = open_project(ctx.folder(args.kernel_dir))
    path = project.root / BUILD_FILE
    text = path.read_text("utf-8")
    replace_atomically(path, _captured_build_file(text, project.python_name).encode())
    try:
        open_project(project.root)
    # Also after Ctrl-C: a build.toml that cannot be opened must not stay.
    except BaseException:
        replace_atomically(path, text.encode())
        raise
    if args.json:
        ctx.ui.data_json({"file": BUILD_FILE})
    ctx.ui.say(f"{BUILD_FILE} compiles the launches of torch-ext/{project.python_name}")
    ctx.ui.say("next: `kbuild capture --record -- COMMAND`, then `kbuild build`")
    return 0


def _captured_build_file(text: str, package: str) -> str:
    """A build.toml whose Python package has its launches compiled.

    Raises:
        UsageError: it is not that of a Python-only project for backends of the language.
    """
    import tomlkit

    from kbuild.ops.language import LANGUAGES

    language = LANGUAGES.get(LAUNCH_LANGUAGE)
    document = tomlkit.parse(text)
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
