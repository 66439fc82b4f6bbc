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
from jinja2 import UndefinedError

from kbuild.backends import BACKENDS
from kbuild.plan.generate.project import generate, generate_project, ops_text
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


def test_the_order_of_plans_does_not_matter():
    plans = [plan_of(name) for name in COMPILED]
    assert generate_project(plans).digest == generate_project(plans[::-1]).digest


@pytest.mark.parametrize("variant", SECTIONS)
def test_a_second_write_touches_nothing(variant, tmp_path):
    files = generate(plan_of(variant))
    files.write(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    report = generate(plan_of(variant)).write(tmp_path)
    assert not report.written
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


@pytest.mark.parametrize("path", sorted(PROJECT.rglob("*.j2")), ids=lambda path: path.name)
def test_templates_are_small(path):
    assert len(path.read_text().splitlines()) <= 80


def test_only_language_snippets_know_backends():
    names = "|".join(BACKENDS.names())
    texts = {path: path.read_text() for path in (ROOT / "kbuild" / "generate").glob("*.py")}
    for path in PROJECT.rglob("*"):
        if path.is_file() and path.parent.name != "languages" and path.name != "registration.h":
            texts[path] = path.read_text()
    assert len(texts) > 15
    found = {path.name: re.findall(rf"\b({names})\b", text) for path, text in texts.items()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        rendering.render("project/setup.py.j2")


@pytest.mark.parametrize("variant", SECTIONS)
def test_ops_is_python_3_9(variant):
    ast.parse(ops_text(plan_of(variant)), feature_version=(3, 9))


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


def test_no_trailing_spaces():
    for name in SECTIONS:
        for path, data in generate(plan_of(name)).items():
            assert not re.search(rb"[ \t]\n", data), (name, path)


@pytest.mark.parametrize(
    ("names", "backend"),
    [(COMPILED[:1], "scikit_build_core.build"), (["torch-cuda"], "setuptools.build_meta")],
)
def test_pyproject_is_toml(names, backend):
    files = generate_project([plan_of(name) for name in names])
    data = tomli.loads(files["pyproject.toml"].decode())
    assert data["build-system"]["build-backend"] == backend
    assert data["tool"]["pytest"]["ini_options"]["markers"][0].startswith("kernels_ci")


def test_python_only_packages_are_found_by_their_python_name():
    files = generate_project([plan_of("torch-cuda")])
    found = tomli.loads(files["pyproject.toml"].decode())["tool"]["setuptools"]["packages"]["find"]
    assert found == {"where": ["torch-ext"], "include": ["fast_relu", "fast_relu.*"]}


def test_a_project_written_elsewhere_finds_its_sources(tmp_path):
    root, target = tmp_path / "kernel", tmp_path / "kernel" / "out"
    files = generate_project([plan_of(COMPILED[0])], root, target)
    assert b'KBUILD_SOURCE_DIR "${CMAKE_CURRENT_SOURCE_DIR}/.."' in files["CMakeLists.txt"]


def test_mixed_projects_are_compiled_ones():
    files = generate_project([plan_of(COMPILED[0]), plan_of("torch-tpu")])
    assert b"scikit_build_core" in files["pyproject.toml"]
    assert "cmake/variants/torch-tpu.cmake" not in files
