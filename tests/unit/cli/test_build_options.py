"""The options that choose compilers, Torch and archs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import pytest

from kbuild.cli.build_options import add_archs, add_dev, add_tools, archs_of, toolchain_of
from kbuild.errors import UsageError
from kbuild.runtime.processes import ProcessResult
from tests.support.projects import BINDING, kernel


class Machine:
    """A machine with GPUs, or without."""

    def __init__(self, *gpus: str) -> None:
        self.gpus = gpus

    def run(self, argv, **_) -> ProcessResult:
        found = self.gpus if argv[0] == "nvidia-smi" else ()
        return ProcessResult(tuple(argv), 0 if found else 127, "\n".join(found), 0.0)


def options(*arguments: str) -> Namespace:
    parser = ArgumentParser()
    for add in (add_tools, add_archs, add_dev):
        add(parser)
    return parser.parse_args(arguments)


@pytest.fixture
def made(project):
    return project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))


def test_all_archs_are_the_default(made):
    assert archs_of(options(), made, Machine("9.0")) == ()
    assert archs_of(options("--arch", "all"), made, Machine()) == ()


def test_archs_can_be_named(made):
    asked = options("--arch", "8.0,9.0a", "--arch", "native")
    assert archs_of(asked, made, Machine("9.0", "9.0")) == ("8.0", "9.0a", "9.0")


def test_a_development_build_is_for_this_machine(made):
    assert toolchain_of(options("--dev", "--toolchain", "wheels")) == "host"
    assert archs_of(options("--dev"), made, Machine("8.9")) == ("8.9",)
    assert archs_of(options("--dev"), made, Machine()) == ()
    assert archs_of(options("--dev", "--arch", "9.0"), made, Machine("8.9")) == ("9.0",)


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("sm_90", "did you mean `9.0`"),
        ("native", "no GPU was found"),
        ("all,9.0", "all stands alone"),
    ],
)
def test_what_cannot_be_is_refused(made, arch, words):
    with pytest.raises(UsageError) as caught:
        archs_of(options("--arch", arch), made, Machine())
    assert words in str(caught.value)
