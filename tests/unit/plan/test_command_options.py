"""A new option of `kbuild build` is one field: everything else follows from it."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import (
    add_options,
    flags_refused_by_nix,
    option,
    read_options,
    validate_options,
)
from kbuild.system.errors import UsageError
from kbuild.system.processes import LocalRunner
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.projects import BINDING, kernel


def parse_level(level: int) -> int:
    if level not in range(4):
        raise UsageError("--level takes a number from 0 to 3")
    return level


@dataclass(frozen=True)
class WiderOptions(BuildOptions):
    level: int = option(
        "--level",
        default=2,
        type=int,
        metavar="N",
        help="how much is optimised, from 0 to 3 (default: 2)",
        parse=parse_level,
    )


@pytest.fixture
def parser() -> ArgumentParser:
    parser = ArgumentParser()
    add_options(parser, WiderOptions)
    return parser


def test_validation(parser):
    validate_options(parser.parse_args(["--level", "3"]), WiderOptions)
    with pytest.raises(UsageError, match="--level takes a number from 0 to 3"):
        validate_options(parser.parse_args(["--level", "7"]), WiderOptions)


def test_value(parser, project):
    made = project(BINDING, kernel("cpu"))
    services = Services(LocalRunner(), Ui(), made.root / "cache", made.root)

    def read(*arguments: str) -> WiderOptions:
        return read_options(parser.parse_args(arguments), services, made, WiderOptions)

    assert read() == WiderOptions()
    assert read("--level", "0", "--keep-all").level == 0


def test_builds_by_nix_refuse_it(parser):
    args = parser.parse_args(["--level", "3", "--output", "x"])
    assert flags_refused_by_nix(args, WiderOptions) == ("--level",)
