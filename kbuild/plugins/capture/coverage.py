"""Lists the images that a program uses, and its calls that have none: `kbuild capture --coverage`.

Launchers and the package's Python append lines to a file of each process, in the folder that
`KBUILD_COVERAGE` names: the path of the library, the kind of the line, and its fields.
"""

from __future__ import annotations

import os
import runpy
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from kbuild.system.errors import CheckError, KbuildError, UsageError, counted
from kbuild.system.services import Services
from kbuild.system.temporary import temporary_folder

VARIABLE = "KBUILD_COVERAGE"
_TABLE = "_launch_table.py"
_WIDTH = 200
"""Characters that describe an image."""


@dataclass(frozen=True)
class CoveredImage:
    """An image that the device of a program can run."""

    library: str
    """The extension, as a path."""
    op: str
    function: str
    candidate: int
    """Index in the author's list of candidates, or of the recorded calls of an op."""
    arch: str
    assumes: bool
    """True if it is for aligned calls alone."""
    constants: str
    """Constants that calls decide, such as `N = 64`."""

    def describe(self, tables: Mapping[str, Mapping[tuple[str, int], str]]) -> str:
        """Describe the image for its author; `tables` has the recorded calls of each library."""
        recorded = tables.get(self.library, {}).get((self.op, self.candidate))
        parts = [
            recorded or f"{self.op}: {self.function}, candidate {self.candidate}",
            *([self.constants] if self.constants else []),
            *(["aligned calls"] if self.assumes else []),
            self.arch,
        ]
        return ", ".join(parts)


@dataclass
class Coverage:
    """The images that a program could use, those that it used, and calls without one."""

    images: dict[tuple[str, str, str], CoveredImage] = field(default_factory=dict)
    """Library, section and number of the machine code -> the image."""
    called: set[tuple[str, str, str]] = field(default_factory=set)
    missing: dict[str, None] = field(default_factory=dict)

    def add(self, lines: Iterable[str]) -> None:
        """Take the lines of a process."""
        for line in lines:
            library, kind, *fields = line.rstrip("\n").split("\t")
            if kind == "missing":
                self.missing[fields[0]] = None
                continue
            key = library, fields[0], fields[1]
            if kind == "loaded":
                self.called.add(key)
            else:
                op, function, candidate, arch, tier, constants = fields[2:]
                image = CoveredImage(
                    library, op, function, int(candidate), arch, tier != "0", constants
                )
                self.images.setdefault(key, image)

    def split(self) -> tuple[list[CoveredImage], list[CoveredImage]]:
        """Return the images that were called, and those that were not."""
        called = [image for key, image in self.images.items() if key in self.called]
        return called, [image for key, image in self.images.items() if key not in self.called]


def cover(args: Namespace, ctx: Services) -> int:
    """Run a command, and say which images it called and which of its calls have none.

    Raises:
        UsageError: there is no command.
        CheckError: the command failed, though all of its calls have images, or called no package.
        UncoveredError: calls have no image.
    """
    if not args.rest:
        hint = "kbuild capture --coverage -- pytest tests"
        raise UsageError("--coverage needs a command", hint=hint)
    coverage = Coverage()
    with temporary_folder("coverage") as folder:
        env = {**os.environ, VARIABLE: str(folder)}
        done = ctx.runner.run(
            args.rest, cwd=ctx.folder(args.kernel_dir), env=env, listen=ctx.ui.say
        )
        for path in sorted(folder.iterdir()):
            coverage.add(path.read_text("utf-8", "replace").splitlines())
    called, unused = coverage.split()
    tables = {
        library: _recorded_calls(Path(library).parent / _TABLE)
        for library in {image.library for image in coverage.images.values()}
    }
    described = [
        [asdict(image) | {"text": image.describe(tables)} for image in images]
        for images in (called, unused)
    ]
    report: dict[str, Any] = {
        "called": described[0],
        "never_called": described[1],
        "missing": [*coverage.missing],
    }
    if not args.json:
        lines = [f"called: {image['text']}" for image in report["called"]]
        lines += [f"never called: {image['text']}" for image in report["never_called"]]
        lines += [f"no image: {text}" for text in coverage.missing]
        # Images for different integers, such as multiples of 16, have one description.
        ctx.ui.data("".join(f"{line}\n" for line in dict.fromkeys(lines)))
    _raise_for(report, args.rest, done.returncode)
    if args.json:
        ctx.ui.data_json(report)
    counts = f"{len(called)} of {counted(len(coverage.images), 'image')} were called"
    ctx.ui.say(f"{counts}, none is missing")
    return 0


class UncoveredError(KbuildError):
    """Calls without an image."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        hint = "record these calls, and build again: `kbuild capture --record -- COMMAND`"
        message = f"{counted(len(report['missing']), 'call')} of the command had no image"
        super().__init__(message, hint=hint)
        self._report = report

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object, with all images."""
        return {**super().to_json(), **self._report}


def _raise_for(report: Mapping[str, Any], command: Sequence[str], exit_code: int) -> None:
    if report["missing"]:
        raise UncoveredError(report)
    if exit_code != 0:
        message = f"`{' '.join(command)}` failed with exit code {exit_code}"
        raise CheckError(message, (), hint="every call before had an image")
    if not report["called"]:
        hint = "it has to use the built package on a device that this has images for"
        raise CheckError(
            "the command called no image of a package that kbuild built", (), hint=hint
        )


def _recorded_calls(path: Path) -> dict[tuple[str, int], str]:
    """The recorded launches of a package by op and candidate; empty if it has none."""
    if not path.is_file():
        return {}
    functions = runpy.run_path(str(path))["TABLE"]["functions"]
    return {
        (launch["op"], launch["form"]): _described(function, launch)
        for function in functions
        for launch in function["launches"]
    }


def _described(function: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    if "record" in launch:
        parts = str(launch["record"])
    else:
        # Launches of a kernel differ most in their constants and options.
        tables = (launch["constants"], launch["options"], launch["arguments"])
        parts = ", ".join(f"{name}={value}" for table in tables for name, value in table.items())
    call = f"{function['function']}({parts})"
    return f"{function['source']}: {shorten(call, _WIDTH, placeholder=' ...')}"
