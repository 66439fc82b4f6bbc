"""`kbuild check` as a command."""

from __future__ import annotations

import pytest

from kbuild.checks.base import Finding
from kbuild.errors import ToolchainError
from kbuild.static.includes import SourceVerdict

METAL = """\
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
def metal(here):
    """A project with one shader."""
    for path, text in {
        "build.toml": METAL,
        "torch-ext/demo/__init__.py": "__all__ = ['one']\none = 1\n",
        "torch-ext/binding.cpp": "",
        "cpu.cpp": "",
        "demo.metal": "#include <metal_stdlib>\n",
    }.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    return here


def test_what_is_proved_and_what_is_not(kbuild, metal):
    answer = kbuild("check")
    assert answer.code == 0
    assert "torch215-metal-aarch64-darwin  ok" in answer.out
    assert "includes of 1 file resolved" in answer.out
    assert "sources of cpu not looked at" in answer.err


def test_namespaces_in_cxx_sources_are_judged(kbuild, metal):
    (metal / "cpu.cpp").write_text("TORCH_LIBRARY(demo, m) {}\n")
    answer = kbuild("check", "--only", "ops")
    assert answer.code == 6
    assert answer.out.count("cpu.cpp:1: `TORCH_LIBRARY` opens the namespace `demo`") == 1
    (metal / "cpu.cpp").write_text("TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {}\n")
    assert kbuild("check", "--only", "ops").code == 0


def test_findings_are_an_exit_code(kbuild, metal):
    (metal / "demo.metal").write_text('\n#include "gone.h"\n')
    answer = kbuild("check")
    assert answer.code == 6
    assert "error: demo.metal:2: `gone.h` is not found" in answer.out
    assert answer.err.endswith("error: the sources of demo have errors\n")
    answer = kbuild("check", "--json")
    assert answer.code == 6
    (verdict,) = answer.json["targets"][0]["sources"]["variants"]
    assert verdict["state"] == "broken"
    assert verdict["findings"][0]["where"] == "demo.metal:2"


def test_a_warning_is_none(kbuild, metal):
    (metal / "demo.metal").write_text('#if X\n#include "gone.h"\n#endif\n')
    answer = kbuild("check")
    assert answer.code == 0
    assert "warning: demo.metal:2: `gone.h` is not found" in answer.out
    assert kbuild("check", "--strict").code == 6


def test_every_system_when_variants_are_named(kbuild, metal):
    (target,) = kbuild("check", "--variant", "*", "--json").json["targets"]
    names = [verdict["variant"] for verdict in target["sources"]["variants"]]
    assert len(names) > 2
    assert all("-metal-" in name for name in names)


def test_nothing_to_look_at(kbuild, metal):
    answer = kbuild("check", "--backend", "cpu")
    assert (answer.code, answer.out) == (0, "")
    assert "sources of cpu not looked at" in answer.err


def test_python_only_projects_have_nothing(kbuild, demo):
    answer = kbuild("check", str(demo), "--json")
    (target,) = answer.json["targets"]
    assert (answer.code, target["sources"]["variants"], target["outputs"]) == (0, [], [])
    assert "no built variants" in kbuild("check", str(demo)).err


def test_jobs_is_a_number_of_processes(kbuild, metal):
    assert kbuild("check", "--jobs", "0").code == 2


def test_states():
    error = ToolchainError("no headers")
    warning = Finding("types", "warning", "a:1", "doubtful")
    assert SourceVerdict("v", "", "no headers", error=error).state == "unchecked"
    assert SourceVerdict("v", "all", "", (warning,)).state == "ok"
    assert (
        SourceVerdict("v", "", "no headers", error=error).to_json()["error"]["kind"] == "toolchain"
    )
