"""The options that choose compilers, Torch and archs."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options, read_options
from kbuild.plan.project import Project
from kbuild.system.errors import UsageError
from kbuild.system.processes import ProcessResult
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.projects import BINDING, kernel


class Machine:
    """A machine with GPUs, or without."""

    def __init__(self, *gpus: str) -> None:
        self.gpus = gpus

    def run(self, argv, **_) -> ProcessResult:
        found = self.gpus if argv[0] == "nvidia-smi" else ()
        return ProcessResult(tuple(argv), 0 if found else 127, "\n".join(found), 0.0)


FIELDS = ("toolchain", "python", "archs", "dev")


def options(made: Project, machine: Machine, *arguments: str) -> BuildOptions:
    parser = ArgumentParser()
    add_options(parser, BuildOptions, *FIELDS)
    services = Services(machine, Ui(), made.root / "cache")
    return read_options(parser.parse_args(arguments), services, made, BuildOptions, *FIELDS)


@pytest.fixture
def made(project):
    return project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))


@pytest.mark.parametrize(
    ("arguments", "text", "cross"),
    [
        ((), "", set()),
        (("--variant", "torch213-*"), "", set()),
        (("--system", "aarch64-linux"), "", {"aarch64-linux"}),
        (("--variant", "*-aarch64-linux"), "", {"aarch64-linux"}),
        (("--variant", "torch213-cxx11-cpu-aarch64-linux"), "", {"aarch64-linux"}),
        ((), '[build]\nsystems = ["aarch64-linux"]\n', {"aarch64-linux"}),
    ],
)
def test_systems_to_build_for_are_asked_for(made, arguments, text, cross):
    if text:
        (made.root / "kbuild.toml").write_text(text)
    parser = ArgumentParser()
    add_options(parser, BuildOptions, "selection")
    services = Services(Machine(), Ui(), made.root / "cache")
    given = parser.parse_args(arguments)
    selection = read_options(given, services, made, BuildOptions, "selection").selection
    assert {str(system) for system in selection.cross} == cross


def test_a_development_build_is_for_this_machine(made):
    assert options(made, Machine(), "--dev", "--toolchain", "wheels").toolchain == "host"
    assert options(made, Machine("8.9"), "--dev").archs == ("8.9",)
    assert options(made, Machine(), "--dev").archs == ()
    assert options(made, Machine("8.9"), "--dev", "--arch", "9.0").archs == ("9.0",)


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("sm_90", "did you mean `9.0`"),
        ("native", "no GPU was found"),
        ("all,9.0", "all cannot be combined"),
    ],
)
def test_what_cannot_be_is_refused(made, arch, words):
    with pytest.raises(UsageError) as caught:
        options(made, Machine(), "--arch", arch)
    assert words in str(caught.value)
