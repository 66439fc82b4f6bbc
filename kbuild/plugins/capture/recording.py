"""Runs a command and reads which kernels it launched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kbuild.ops.language import Language
from kbuild.plugins.capture.launches import CapturedFunction, read_launch
from kbuild.system.errors import CheckError
from kbuild.system.processes import Runner
from kbuild.system.temporary import temporary_folder


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

    Raises:
        CheckError: the command failed.
    """
    places = {os.path.realpath(root / path): path for path in sources}
    with temporary_folder("record") as folder:
        own, answers = folder / "site", folder / "lines"
        own.mkdir()
        answers.mkdir()
        options = {"options": sorted(language.options), "all_configs": all_configs}
        settings = {"sources": places, "folder": str(answers), **options, "run": run_kernels}
        (own / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        if language.launch_recorder is not None:
            (own / "sitecustomize.py").write_bytes(language.launch_recorder.read_bytes())
        paths = filter(None, (str(own), os.environ.get("PYTHONPATH")))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = runner.run(command, cwd=root, env=env, listen=say)
        lines = [
            json.loads(line)
            for path in sorted(answers.iterdir())
            for line in path.read_text("utf-8").splitlines()
        ]
    if done.returncode != 0:
        message = f"`{' '.join(command)}` failed with exit code {done.returncode}"
        raise CheckError(message, (), hint="nothing was written; the command has to succeed")
    problems = [
        f"`{line['function']}` of {line['source']} {line['problem']}: that launch is left out"
        for line in lines
        if "problem" in line
    ]
    return list(_functions(lines, problems)), list(dict.fromkeys(problems))


def _functions(
    lines: Sequence[Mapping[str, object]], problems: list[str]
) -> Iterator[CapturedFunction]:
    for line in lines:
        source, name = str(line["source"]), str(line["function"])
        if "tuned" in line:
            yield CapturedFunction(source, name, (), tuned=(line["tuned"],))  # type: ignore[arg-type]
        elif "problem" not in line:
            try:
                yield CapturedFunction(source, name, (read_launch(line),))
            except ValueError as error:
                problems.append(f"`{name}` of {source}: {error}: that launch is left out")
