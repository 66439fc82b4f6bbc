"""A new option of `kbuild build` is one field: everything else follows from it."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import (
    add_options,
    given_flags,
    option,
    read_options,
    recorded_options,
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
        record=("level", int),
    )


@pytest.fixture
def parser() -> ArgumentParser:
    parser = ArgumentParser()
    add_options(parser, WiderOptions)
    return parser


def test_parser_and_help(parser):
    assert parser.parse_args(["--level", "3"]).level == 3
    assert "--level N" in parser.format_help()
    assert "how much is optimised, from 0 to 3" in parser.format_help()


def test_validation(parser):
    validate_options(parser.parse_args(["--level", "3"]), WiderOptions)
    with pytest.raises(UsageError, match="--level takes a number from 0 to 3"):
        validate_options(parser.parse_args(["--level", "7"]), WiderOptions)


def test_value_and_provenance(parser, project):
    made = project(BINDING, kernel("cpu"))
    services = Services(LocalRunner(), Ui(), made.root / "cache", made.root)

    def read(*arguments: str) -> WiderOptions:
        return read_options(parser.parse_args(arguments), services, made, WiderOptions)

    plain = read()
    assert plain == WiderOptions(driver=plain.driver, nix=plain.nix)
    assert read("--level", "0", "--keep-all").level == 0
    assert recorded_options(read("--level", "3")) == {
        **recorded_options(BuildOptions()),
        "level": 3,
    }
    assert recorded_options(read("--allow", "ops", "--torch-wheel", "a/b.whl")) == {
        "identity": False,
        "toolchain": "auto",
        "python": False,
        "torch-wheel": ["b.whl"],
        "with-source": [],
        "archs": [],
        "allow": recorded_options(read("--allow", "ops"))["allow"],
        "level": 2,
    }


def test_it_belongs_to_the_local_driver(parser):
    args = parser.parse_args(["--level", "3", "--cores", "2", "--output", "x"])
    assert given_flags(args, WiderOptions, "local") == ("--level",)
    assert given_flags(args, WiderOptions, "nix") == ("--cores",)
