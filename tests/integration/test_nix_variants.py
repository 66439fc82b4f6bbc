"""The variants that Nix reads from a `build.toml`, against `kbuild list-variants`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from kbuild.plan.project import Project, open_project
from kbuild.plan.selection import Selection, VariantChoice, environment_variants, project_variants
from kbuild.system.sourcetree import SourceTree
from tests.support.command_project import ROOT
from tests.support.nix.evaluation import EXAMPLES, NixBench, flake, needs_nix, nix_bench
from tests.support.nix.projects import Generated

pytestmark = needs_nix
COUNT = 240
EVERYTHING = Selection(globs=("*",))
DESCRIBED = """
  projects = map (text:
    let toml = builtins.fromTOML text; in {
      variants = variantsOf { inherit toml; };
      environments = environmentsOf { inherit toml; };
    }) (builtins.fromJSON (builtins.readFile ./texts.json));
"""


@pytest.fixture(scope="module")
def bench():
    with nix_bench() as made:
        yield made


@pytest.fixture(scope="module")
def projects() -> list[Project]:
    """The examples and the generated projects."""
    made = (Generated(number).tree for number in range(COUNT))
    examples = (SourceTree(ROOT / "examples" / name) for name in EXAMPLES)
    return [open_project(tree.root, tree) for tree in (*examples, *made)]


@pytest.fixture(scope="module")
def described(bench: NixBench) -> list[Any]:
    """What Nix says of each project: one pure evaluation."""
    folder = flake(bench.place / "flake", DESCRIBED)
    examples = [(ROOT / "examples" / name / "build.toml").read_text() for name in EXAMPLES]
    made = [Generated(number).files["build.toml"] for number in range(COUNT)]
    (folder / "texts.json").write_text(json.dumps([*examples, *made]))
    found, _ = bench.eval(f"path:{folder}#projects")
    return found


FACTS = (
    *("name", "framework", "backend", "torch", "toolkit", "release", "system"),
    *("isNoarch", "isDefault"),
)


def facts(choice: VariantChoice) -> dict[str, Any]:
    variant = choice.variant
    return {
        "name": str(variant),
        "framework": variant.framework,
        "backend": variant.backend,
        "torch": str(choice.torch) if choice.torch else None,
        "toolkit": str(variant.backend_version) if variant.backend_version else None,
        "release": str(variant.framework_version) if variant.framework_version else None,
        "system": str(variant.system) if variant.system else None,
        "isNoarch": variant.is_noarch,
        "isDefault": choice.default,
    }


def test_the_same_variants_in_the_same_order(described, projects) -> None:
    for project, found in zip(projects, described, strict=True):
        ours = [facts(choice) for choice in project_variants(project)]
        assert [{key: made[key] for key in FACTS} for made in found["variants"]] == ours
    count = sum(len(found["variants"]) for found in described)
    assert count > 10 * COUNT  # otherwise the projects say nothing


def test_the_same_environments(described, projects) -> None:
    for project, found in zip(projects, described, strict=True):
        choices = environment_variants(project, EVERYTHING)
        ours = [(str(c.variant), str(c.torch), c.default) for c in choices]
        theirs = found["environments"]
        assert [(e["name"], e["torch"], e["isDefault"]) for e in theirs] == ours
        known = {str(choice.variant) for choice in project_variants(project)}
        assert {e["variant"] for e in theirs} - {None} <= known


class TestChoices:
    def names(self, bench: NixBench, place: Path, arguments: str, expect: int = 0) -> Any:
        toml = "lib.readToml ./build.toml"
        outputs = f"names = map (v: v.name) (variantsOf {{ toml = {toml}; {arguments} }});"
        shutil.copy(ROOT / "examples/relu/build.toml", flake(place, outputs) / "build.toml")
        found, said = bench.eval(f"path:{place}#names", expect=expect)
        return found if expect == 0 else said

    def test_releases_as_tables(self, bench, tmp_path) -> None:
        chosen = 'torchVersions = builtins.filter (release: release.version == "2.12");'
        found = self.names(bench, tmp_path, chosen + ' systems = [ "x86_64-linux" ];')
        assert found == [
            "torch212-cxx11-cpu-x86_64-linux",
            "torch212-cxx11-cu126-x86_64-linux",
            "torch212-cxx11-cu130-x86_64-linux",
            "torch212-cxx11-cu132-x86_64-linux",
            "torch212-cxx11-rocm71-x86_64-linux",
            "torch212-cxx11-rocm72-x86_64-linux",
            "torch212-cxx11-xpu20253-x86_64-linux",
        ]

    def test_a_release_that_is_not_known(self, bench, tmp_path) -> None:
        said = self.names(bench, tmp_path, 'torchVersions = _: [ "1.0" ];', expect=1)
        assert "torchVersions: kbuild has no Torch 1.0, only 2.11, 2.12" in said


TYPES = (1, 1.5, True, "", "x", "cuda", "2.12", [], {}, [1], ["x", ".."], [[]], {"x": 1}, [{}])
WRONG = """
  wrong = map (toml:
    let
      variants = variantsOf { inherit toml; };
      sources = sourcesOf { inherit toml variants; root = ./.; };
    in [ (map (variant: variant.name) variants) sources.missing
         (map (source: source.files ++ source.stubs.files) (builtins.attrValues sources.variants))
       ]) (builtins.fromJSON (builtins.readFile ./wrong.json));
"""


def retyped(data: dict[str, Any], whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The whole file, each time with one value of another type."""
    for key, value in [*data.items()]:
        for other in TYPES:
            data[key] = other
            yield deepcopy(whole)
        data[key] = value
        if isinstance(value, dict):
            yield from retyped(value, whole)


def test_what_kbuild_refuses_can_be_evaluated(bench, tmp_path) -> None:
    """So that the sandbox can say what is wrong, in kbuild's words."""
    whole = {
        "general": {"name": "k", "backends": ["cuda", "cpu", "tpu"], "cuda": {"minver": "12.8"}},
        "torch": {"src": ["a.cpp"], "include": ["b"], "maxver": "2.14", "stable-abi": "2.11"},
        "kernel": {"k": {"backend": "cuda", "src": ["k.cu"], "cuda-minver": "12.6"}},
    }
    files = list(retyped(whole, whole))
    (flake(tmp_path, WRONG) / "wrong.json").write_text(json.dumps(files))
    found, _ = bench.eval(f"path:{tmp_path}#wrong")
    assert len(found) == len(files) > 200
