"""Properties of all generated projects; their text is in tests/golden."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from kbuild.backends import BACKENDS
from kbuild.plan.generate.project import generate, generate_project
from kbuild.system import rendering
from tests.support.plans import SECTIONS, plan_of

ROOT = Path(__file__).parents[4]
PROJECT = rendering.template_root() / "project"
COMPILED = [name for name, sections in SECTIONS.items() if sections]
_DIGEST = """
from tests.support.plans import SECTIONS, plan_of
from kbuild.plan.generate.project import generate, generate_project
plans = [plan_of(name) for name in SECTIONS]
print(*(generate(plan).digest for plan in plans))
print(generate_project([plan for plan in plans if plan.is_compiled]).digest)
"""


def test_same_plans_same_bytes_whatever_the_hash_seed():
    def digests(seed: str) -> bytes:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.check_output([sys.executable, "-c", _DIGEST], env=env)

    assert digests("1") == digests("2")


def test_only_language_snippets_know_backends():
    names = "|".join(BACKENDS.names())
    texts = {path: path.read_text() for path in (ROOT / "kbuild" / "generate").glob("*.py")}
    for path in PROJECT.rglob("*"):
        if path.is_file() and path.parent.name != "languages" and path.name != "registration.h":
            texts[path] = path.read_text()
    assert len(texts) > 15
    found = {path.name: re.findall(rf"\b({names})\b", text) for path, text in texts.items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_a_variant_has_one_file_of_its_own():
    names = [name for name in COMPILED if name.startswith("torch213")]
    one, all_ = generate_project([plan_of(names[0])]), generate_project([plan_of(n) for n in names])
    more = {path for path, _ in all_.items()} - {path for path, _ in one.items()}
    own = {path for path in more if not path.startswith("cmake/languages/")}
    assert own == {f"cmake/variants/{name}.cmake" for name in names[1:]}


def test_copied_scripts_are_python_3_9():
    scripts = [*PROJECT.rglob("*.py")]
    assert scripts
    for path in scripts:
        ast.parse(path.read_text(), feature_version=(3, 9))


def test_a_plug_in_brings_the_cmake_of_its_language(tmp_path, monkeypatch):
    (tmp_path / "cmake").mkdir()
    for name in ("ACME.cmake", "ACME.py", "OTHER.cmake"):
        (tmp_path / "cmake" / name).write_text(f"# {name}\n")
    monkeypatch.setattr(type(BACKENDS.get("cpu")), "data", tmp_path)
    plan = plan_of(next(name for name in COMPILED if "-cpu-" in name))
    files = dict(generate(replace(plan, languages=("CXX", "ACME"))).items())
    assert files["cmake/languages/ACME.cmake"] == b"# ACME.cmake\n"
    assert "cmake/languages/ACME.py" in files
    assert "cmake/languages/OTHER.cmake" not in files
    assert b"set(KBUILD_DEVICE_LANGUAGES ACME)" in files[f"cmake/variants/{plan.variant}.cmake"]


@pytest.mark.parametrize(
    ("names", "backend"),
    [(COMPILED[:1], "scikit_build_core.build"), (["torch-cuda"], "setuptools.build_meta")],
)
def test_pyproject_is_toml(names, backend):
    files = generate_project([plan_of(name) for name in names])
    data = tomli.loads(files["pyproject.toml"].decode())
    assert data["build-system"]["build-backend"] == backend
    assert data["tool"]["pytest"]["ini_options"]["markers"][0].startswith("kernels_ci")


def test_a_project_written_elsewhere_finds_its_sources(tmp_path):
    root, target = tmp_path / "kernel", tmp_path / "kernel" / "out"
    files = generate_project([plan_of(COMPILED[0])], root, target)
    assert b'KBUILD_SOURCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}/.."' in files["CMakeLists.txt"]
