"""Cards: what is read from the project, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.card import CardError, CardFacts, facts_of, fill_card
from kbuild.surface import SurfaceError

FACTS = CardFacts("org/relu", "relu", 1, "apache-2.0", ("relu",), ("ReLU",), True)


def project(tmp_path: Path, init: str, *, folder: str = "torch-ext") -> Path:
    package = tmp_path / folder / "my_relu"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(init)
    return package


def read(tmp_path: Path) -> CardFacts:
    return facts_of(tmp_path, repo_id="org/my-relu", name="my-relu", version=2, license="MIT")


def test_facts(tmp_path: Path) -> None:
    package = project(tmp_path, '__all__ = ["relu", "layers"]')
    (package / "layers.py").write_text("class ReLU: ...\nclass _Hidden: ...\ndef f(): ...\n")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "benchmark.py").write_text("")
    facts = read(tmp_path)
    assert facts.functions == ("relu",)
    assert facts.layers == ("ReLU",)
    assert facts.has_benchmark
    assert facts.license == "mit"


def test_layers_package_that_re_exports(tmp_path: Path) -> None:
    package = project(tmp_path, '__all__ = ["layers"]', folder="tvm-ffi-ext")
    (package / "layers").mkdir()
    (package / "layers" / "__init__.py").write_text('from .act import A\n__all__ = ["A"]\n')
    assert read(tmp_path).layers == ("A",)


def test_layers_count_only_when_public(tmp_path: Path) -> None:
    package = project(tmp_path, '__all__ = ["relu"]')
    (package / "layers.py").write_text("class ReLU: ...\n")
    assert read(tmp_path).layers == ()


def test_a_project_without_a_package_has_no_functions(tmp_path: Path) -> None:
    assert read(tmp_path).functions == ()


def test_a_broken_init_is_said(tmp_path: Path) -> None:
    project(tmp_path, "def f(:")
    with pytest.raises(SurfaceError, match="does not parse"):
        read(tmp_path)


def test_filling() -> None:
    template = "# {{ name }}\n{% for f in functions %}\n- `{{ f }}`\n{% endfor %}\n"
    assert fill_card(template, FACTS) == "# relu\n- `relu`\n"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(CardError, match="nope") as caught:
        fill_card("{{ nope }}", FACTS)
    assert "repo_id" in caught.value.hint


def test_template_errors_have_a_line() -> None:
    with pytest.raises(CardError, match=r"CARD\.md:2"):
        fill_card("a\n{% for %}", FACTS)


def test_todo_is_refused() -> None:
    with pytest.raises(CardError, match="line 2"):
        fill_card("fine\nTODO: describe\n", FACTS)
