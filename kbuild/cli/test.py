"""`kbuild test`: the project's own tests against a built variant, as its users load it.

The tests run in a fresh process of the interpreter that the kernel was built for. `LOCAL_KERNELS`
tells the `kernels` client to take the variant instead of a download, and the variant can be
imported by the kernel's name: never the sources in `torch-ext`, which lack what is generated.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.parser import add_json, add_kernel_dir
from kbuild.cli.variants import add_python, add_variant, chosen_python, find_variants
from kbuild.errors import TestFailureError, ToolchainError, UsageError
from kbuild.runtime.temporary import temporary_folder
from kbuild.services import Services

if TYPE_CHECKING:
    from kbuild.project import Project
    from kbuild.runtime.processes import ProcessResult

NO_TESTS = 5
"""Exit code of pytest when it collected nothing."""
CI_MARKER = "kernels_ci"
TEST_FOLDERS = ("tests", "test")
_PYTEST_USAGE_ERROR = 4
_MAX_FAILURES_SHOWN = 20
_NO_PYTEST = "No module named pytest"
_PLUGIN = "kbuild_tested_kernel"
_FINDER = """\
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class TestedKernel:
    \"\"\"Finds the built variant by the kernel's name, before any folder of that name.\"\"\"

    @staticmethod
    def find_spec(name, path=None, target=None):
        here = str(Path(__file__).parent)
        return PathFinder.find_spec(name, [here]) if name == {name!r} else None


sys.meta_path.insert(0, TestedKernel)
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel_dir(parser)
    add_variant(parser)
    add_python(parser, "runs the tests")
    parser.add_argument(
        "--marked",
        action="store_true",
        help=f"only tests that are marked `{CI_MARKER}`, as a flake's `ci-test` does",
    )
    add_json(parser)
    parser.set_defaults(rest=())
    parser.epilog = "Arguments after `--` are passed to pytest: kbuild test -- -k backward"


def execute(args: Namespace, ctx: Services) -> int:
    """Run the tests against one variant: the requested one, or the one that the client prefers.

    Raises:
        TestFailureError: a test did not pass, or there was none.
    """
    from kbuild.project import open_project

    project = open_project(ctx.folder(args.kernel_dir))
    folders = find_variants(project.root, args.variant)
    if args.variant and len(folders) > 1:
        names = ", ".join(folder.name for folder in folders)
        raise UsageError(
            f"--variant matches several variants: {names}",
            hint="tests run against one variant",
        )
    python = chosen_python(args.python, ctx)
    asked = _TestRun(project, folders, python, args.marked, tuple(args.rest))
    done = _run_pytest(asked, ctx)
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


@dataclass(frozen=True)
class _TestRun:
    """What is run."""

    project: Project
    folders: tuple[Path, ...]
    """The variant that was chosen, or all that are there."""
    python: Path
    marked: bool
    rest: tuple[str, ...]
    """Arguments of pytest."""

    @property
    def tests(self) -> Path:
        """Where the project's tests are.

        Raises:
            UsageError: there is no such folder.
        """
        for name in TEST_FOLDERS:
            if (self.project.root / name).is_dir():
                return self.project.root / name
        raise UsageError(
            f"`{self.project.root / TEST_FOLDERS[0]}` does not exist",
            hint="`kbuild init` writes tests to start from",
        )

    @property
    def pytest(self) -> tuple[str, ...]:
        """The arguments of pytest; files that were requested replace the folder."""
        root = self.project.root
        named = [part.partition("::")[0] for part in self.rest if not part.startswith("-")]
        paths = [part for part in named if part.endswith(".py") or os.sep in part]
        places = () if any((root / path).exists() for path in paths) else (str(self.tests),)
        marked = ("-m", CI_MARKER) if self.marked else ()
        options = ("-p", "no:cacheprovider", "-p", _PLUGIN, f"--rootdir={root}")
        return (*places, *marked, *options, *self.rest)


def _run_pytest(asked: _TestRun, ctx: Services) -> ProcessResult:
    arguments = asked.pytest
    variant = _loaded_variant(asked, ctx)
    # `repo=dir`: the folder of all variants, or the one variant that was chosen.
    hub = asked.project.file.general.hub
    repo_id = (hub.repo_id if hub else None) or asked.project.name
    place = asked.folders[0] if len(asked.folders) == 1 else asked.folders[0].parent
    env = os.environ | {"LOCAL_KERNELS": f"{repo_id}={place}", "PYTHONDONTWRITEBYTECODE": "1"}
    with _import_folder(asked.project.python_name, variant) as folder:
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(folder), os.environ.get("PYTHONPATH")))
        )
        argv = (str(asked.python), "-m", "pytest", *arguments)
        environment = f"with LOCAL_KERNELS={env['LOCAL_KERNELS']} PYTHONPATH={env['PYTHONPATH']}"
        ctx.ui.detail(f"{' '.join(argv)} {environment}")
        return ctx.runner.run(argv, cwd=asked.project.root, env=env, listen=ctx.ui.say)


@contextmanager
def _import_folder(name: str, variant: Path | None) -> Iterator[Path]:
    """A folder for `PYTHONPATH` where the variant has the kernel's name, with pytest's plug-in."""
    with temporary_folder("test") as folder:
        if variant is not None:
            (folder / name).symlink_to(variant, target_is_directory=True)
        (folder / f"{_PLUGIN}.py").write_text(_FINDER.format(name=name), encoding="utf-8")
        yield folder


def _loaded_variant(asked: _TestRun, ctx: Services) -> Path | None:
    """The variant that the interpreter's client takes; None where nobody can tell.

    Raises:
        ToolchainError: none of them fits.
    """
    from kbuild.versions.compatibility import check_compatibility

    if len(asked.folders) == 1:
        return asked.folders[0]
    names = [folder.name for folder in asked.folders]
    (fit,) = check_compatibility([names], asked.python, ctx.runner)
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
        message = f"nothing was tested: pytest found no test in `{asked.tests.name}`"
        hint = "write functions `test_...` in files `test_*.py`"
        if asked.marked:
            message += f" that is marked `{CI_MARKER}`"
            hint = f"mark tests with `@pytest.mark.{CI_MARKER}`, or leave --marked out"
        if asked.rest:
            hint = f"check `{' '.join(asked.rest)}`, which pytest got; {hint}"
        raise TestFailureError(message, hint=hint)
    if _NO_PYTEST in done.output:
        raise ToolchainError(
            f"`{asked.python}` has no pytest", hint=f"{asked.python} -m pip install pytest kernels"
        )
    if done.returncode == _PYTEST_USAGE_ERROR:
        raise UsageError("pytest rejected these arguments", hint="see its message above")
    listed = "".join(f"\n    {line}" for line in _failure_lines(done.output)[:_MAX_FAILURES_SHOWN])
    raise TestFailureError(f"tests failed:{listed}", hint=f"the command was: {done.command}")


def _failure_lines(output: str) -> list[str]:
    """pytest's one-line summaries of what did not pass."""
    return [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
