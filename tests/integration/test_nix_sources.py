"""The files that Nix builds a variant from, against what kbuild's plan of it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbuild.plan.plan import VariantPlan
from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import VariantChoice, project_variants
from kbuild.plan.variant import Identity
from kbuild.sources.includes import IncludeGraph
from kbuild.system.sourcetree import SourceTree
from tests.support.nix.evaluation import (
    EXAMPLES,
    NixBench,
    copied,
    flake,
    needs_nix,
    nix_bench,
    unpack,
)
from tests.support.nix.projects import NOISE, Generated
from tests.support.projects import plan_variant

pytestmark = needs_nix
COUNT = 40
IDENTITY = Identity("0000000")
DESCRIBED = """
  sources = builtins.mapAttrs (name: _:
    let
      root = ./projects + "/${name}";
      toml = lib.readProject root;
      sources = sourcesOf { inherit root toml; variants = variantsOf { inherit toml; }; };
      seen = source: {
        inherit (source) files tree;
        unpack = source.unpack "unpacked";
      };
    in {
      variants = builtins.mapAttrs (_: seen) sources.variants;
      parts = sources.parts [ "tests" "CARD.md" ];
    }) (builtins.readDir ./projects);
"""


@pytest.fixture(scope="module")
def bench():
    with nix_bench() as made:
        yield made


@pytest.fixture(scope="module")
def projects(bench: NixBench) -> dict[str, Path]:
    """Folders by name: the examples and the generated projects."""
    place = flake(bench.place / "flake", DESCRIBED) / "projects"
    made = {f"number {n}": Generated(n).write(place / f"number {n}") for n in range(COUNT)}
    return {**{name: copied(name, place / name) for name in EXAMPLES}, **made}


@pytest.fixture(scope="module")
def described(bench: NixBench, projects: dict[str, Path]) -> dict[str, Any]:
    """What Nix says of each project: one pure evaluation."""
    found, _ = bench.eval(f"path:{bench.place}/flake#sources")
    assert found.keys() == projects.keys()
    return found


def plan_of(project: Project, choice: VariantChoice) -> VariantPlan:
    return plan_variant(project, choice, IDENTITY)


def test_a_variant_has_what_its_plan_reads(described, projects) -> None:
    for name, root in projects.items():
        project, tree = open_project(root), SourceTree(root)
        for choice in project_variants(project):
            plan = plan_of(project, choice)
            files = {*described[name]["variants"][plan.variant]["files"]}
            included = {
                path
                for part in plan.components
                for source in part.compiled
                for path in IncludeGraph(tree).reachable((source.path,), part.include)
            }
            assert {"build.toml", *plan.inputs, *included} <= files, (name, plan.variant)


def test_a_variant_has_nothing_else(described, projects) -> None:
    for name, root in projects.items():
        project = open_project(root)
        sections = project.file.kernel.values()
        for choice in project_variants(project):
            plan = plan_of(project, choice)
            files = {*described[name]["variants"][plan.variant]["files"]}
            assert not files & NOISE.keys(), (name, plan.variant)
            assert not any(path.count("/") == 2 and path.endswith("_ops.py") for path in files)
            assert not any(path.endswith((".txt", ".pyc", ".typed")) for path in files)
            if not plan.is_compiled:
                shipped = {file.source for file in plan.files}
                assert files <= {"build.toml", *shipped} | package(project), (name, plan.variant)
            mine = {source.path for part in plan.components for source in part.compiled}
            mine |= {path for kernel in plan.aot for path in kernel.sources}
            foreign = {
                path for section in sections
                if plan.backend not in getattr(section, "backends", (section.backend,))
                for path in section.src if not path.endswith(".h")
            } - mine  # fmt: skip
            assert not files & foreign, (name, plan.variant)


def package(project: Project) -> set[str]:
    """Files that `kbuild check-config` wants to see, shipped or not."""
    folder = "tvm-ffi-ext" if project.file.tvm_ffi else "torch-ext"
    return {*SourceTree(project.root).walk(f"{folder}/{project.python_name}")}


def test_the_plan_is_the_same_in_the_sandbox(bench, described, projects, tmp_path) -> None:
    """Every distinct source is laid out, judged and planned again."""
    opened = {name: open_project(root) for name, root in projects.items()}
    distinct: dict[Path, tuple[str, VariantChoice]] = {}
    for name, project in opened.items():
        for choice in project_variants(project):
            tree = described[name]["variants"][str(choice.variant)]["tree"]
            distinct[tmp_path / name / Path(tree).name] = (name, choice)
    found = {
        place: described[name]["variants"][str(choice.variant)]
        for place, (name, choice) in distinct.items()
    }
    unpack(bench, found)
    for place, (name, choice) in distinct.items():
        inside = open_project(place / "unpacked")
        assert plan_of(inside, choice) == plan_of(opened[name], choice), (name, choice)
        listed = {str(path.relative_to(inside.root)) for path in inside.root.rglob("*")}
        assert not listed & NOISE.keys()
    assert len(distinct) > 2 * COUNT


def test_the_parts_beside_the_sources(bench, described) -> None:
    found = bench.real(described["relu"]["parts"])
    assert {path.name for path in found.rglob("*")} == {
        "CARD.md", "tests", "conftest.py", "test_relu.py"
    }  # fmt: skip
