"""Shells to build in, and to test in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.cli.shells import ShellEnvironment, loading_variables
from kbuild.plan.project import open_project
from kbuild.system.processes import LocalRunner
from tests.support.projects import BINDING, kernel, write_project

NAME = "torch213-cxx11-cpu-x86_64-linux"


@pytest.fixture
def project(tmp_path):
    root = write_project(tmp_path / "project", BINDING, kernel("cpu"))
    variant = root / "build" / NAME
    variant.mkdir(parents=True)
    (variant / "metadata.json").write_text("{}")
    (variant / "__init__.py").write_text("answer = 42\n")
    return open_project(root)


def test_a_variant_is_imported_by_the_kernels_name(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/before")
    monkeypatch.setenv("LOCAL_KERNELS", "org/other=/local")
    python = project.root / "bin" / "python"
    variables = loading_variables(project, project.root / "build" / NAME, python)
    folder, before = variables["PYTHONPATH"].split(os.pathsep)
    assert before == "/before"
    assert [path.name for path in Path(folder).iterdir()] == ["my_kernel"]
    assert variables["PATH"].split(os.pathsep)[0] == str(python.parent)
    other, own = variables["LOCAL_KERNELS"].split(":")
    assert (other, own.partition("=")[2]) == (
        "org/other=/local",
        str(project.root / "build" / NAME),
    )
    assert variables["KBUILD_VARIANT"] == NAME
    again = loading_variables(project, project.root / "build" / NAME, python)
    assert again["PYTHONPATH"] == variables["PYTHONPATH"]


def test_the_command_runs_in_the_environment():
    environment = ShellEnvironment(NAME, {"KBUILD_VARIANT": NAME, "X": "a b"})
    done = subprocess.run(  # noqa: TID251
        environment.command(("sh", "-c", 'echo "$KBUILD_VARIANT $X"')),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{NAME} a b\n"


def test_a_shell_for_tests(project):
    script = "import my_kernel; print(my_kernel.answer)"
    variant = ("--test", "--variant", "torch213-*")
    command = ("-m", "kbuild", "devshell", project.root, *variant, "--", "python", "-c", script)
    done = LocalRunner().run((sys.executable, *map(str, command)))
    assert done.ok, done.output
    assert done.output.endswith("`exit` leaves the shell\n42\n")
