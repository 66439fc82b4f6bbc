"""`kbuild check` as a command."""

from __future__ import annotations

import pytest

BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["cpu.cpp"]

[kernel.metal]
backend = "metal"
depends = ["torch"]
src = ["demo.metal"]
"""


@pytest.fixture
def project(here):
    """A project with one shader."""
    for path, text in {
        "build.toml": BUILD,
        "torch-ext/demo/__init__.py": "__all__ = ['one']\none = 1\n",
        "torch-ext/binding.cpp": "",
        "cpu.cpp": "",
        "demo.metal": "#include <metal_stdlib>\n",
    }.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    return here


def test_sound_sources(kbuild, project):
    answer = kbuild("check")
    assert (answer.code, answer.out) == (0, "")
    assert "no built variants were there to check" in answer.err


def test_findings_are_an_exit_code(kbuild, project):
    wrong = 'import torch\ntorch.library.define("demo::one", "() -> ()")\n'
    (project / "torch-ext/demo/__init__.py").write_text(wrong)
    answer = kbuild("check")
    assert answer.code == 6
    assert answer.err.endswith("error: the sources of demo have errors\n")
    answer = kbuild("check", "--json")
    assert (answer.code, answer.json["schema"]) == (6, 2)
    sources = answer.json["targets"][0]["sources"]
    assert (sources["project"], sources["ok"]) == ("demo", False)
    assert sources["findings"][0]["where"] == "torch-ext/demo/__init__.py:2"


def test_python_only_projects_have_nothing(kbuild, demo):
    answer = kbuild("check", str(demo), "--json")
    (target,) = answer.json["targets"]
    assert (answer.code, target["sources"]["findings"], target["outputs"]) == (0, [], [])
    assert "no built variants" in kbuild("check", str(demo)).err
