"""`kbuild test`: the project's own tests against a built variant, as its users load it.

The tests run in a fresh process of the interpreter that the kernel was built for. `LOCAL_KERNELS`
tells the `kernels` client to take the variant instead of a download.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbuild.cli.built import add_python, add_variant, chosen_python, discover
from kbuild.cli.context import Context
from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.errors import TestFailureError, ToolchainError, UsageError

if TYPE_CHECKING:
    from kbuild.project import Project
    from kbuild.run import Done

NO_TESTS = 5
"""Exit code of pytest when it collected nothing."""
_USAGE = 4
_SHOWN = 20
_NO_PYTEST = "No module named pytest"


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    add_python(parser, "runs the tests")
    add_json(parser)
    parser.set_defaults(rest=())
    parser.epilog = "What follows `--` goes to pytest: kbuild test -- -k backward"


def execute(args: Namespace, ctx: Context) -> int:
    """Run the tests against one variant: the one asked for, or the one that the client prefers.

    Raises:
        TestFailureError: a test did not pass.
    """
    from kbuild.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    folders = discover(project.root, args.variant)
    if args.variant and len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise UsageError(f"--variant fits several: {names}", hint="tests run against one")
    python = chosen_python(args.python, ctx)
    done = _run(project, folders, python, args.rest, ctx)
    _judge(done, python)
    if done.returncode == NO_TESTS:
        ctx.ui.warn("no test is marked `kernels_ci`: nothing was tested")
    if args.json:
        ctx.ui.data_json(_object(folders, done))
    return 0


def _run(
    project: Project, folders: Sequence[Path], python: Path, arguments: Sequence[str], ctx: Context
) -> Done:
    tests = project.root / "tests"
    if not tests.is_dir():
        raise UsageError(
            f"`{tests}` does not exist", hint="`kbuild init` writes tests to start from"
        )
    argv = (str(python), "-m", "pytest", str(tests), "-m", "kernels_ci")
    options = ("-p", "no:cacheprovider", f"--rootdir={project.root}")
    ctx.ui.detail(f"{' '.join(argv)} with LOCAL_KERNELS={_offer(project, folders)}")
    env = os.environ | {
        "LOCAL_KERNELS": _offer(project, folders),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return ctx.runner.run(
        (*argv, *options, *arguments), cwd=project.root, env=env, listen=ctx.ui.say
    )


def _offer(project: Project, folders: Sequence[Path]) -> str:
    """`repo=dir`: the folder of all variants, or the one variant that was chosen."""
    hub = project.file.general.hub
    repo_id = (hub.repo_id if hub else None) or project.name
    place = folders[0] if len(folders) == 1 else folders[0].parent
    return f"{repo_id}={place}"


def _judge(done: Done, python: Path) -> None:
    if done.returncode in {0, NO_TESTS}:
        return
    if _NO_PYTEST in done.output:
        raise ToolchainError(
            f"`{python}` has no pytest", hint=f"{python} -m pip install pytest kernels"
        )
    if done.returncode == _USAGE:
        raise UsageError("pytest does not know these arguments", hint="it says which above")
    listed = "".join(f"\n    {line}" for line in _failures(done.output)[:_SHOWN])
    raise TestFailureError(f"tests failed:{listed}", hint=f"the command was: {done.command}")


def _failures(output: str) -> list[str]:
    """pytest's one-line summaries of what did not pass."""
    return [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]


def _object(folders: Sequence[Path], done: Done) -> dict[str, Any]:
    return {
        "variants": [folder.name for folder in folders],
        "collected": done.returncode != NO_TESTS,
        "seconds": round(done.seconds, 3),
        "command": done.command,
    }
