"""What a statement and an SBOM say, and that they say the same everywhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from kbuild.pipeline.provenance.documents import (
    Material,
    ProvenanceFacts,
    byproducts,
    sbom_text,
    statement_text,
    subjects,
)
from kbuild.plan.metadata import Builder, GitState, Provenance
from kbuild.plan.plan import KernelInfo, Requirements, ToolchainSummary, VariantPlan
from kbuild.system.errors import DamagedFileError

VARIANT = "torch213-cxx11-cpu-x86_64-linux"
COMMIT, OTHER = "a" * 40, "b" * 40
WHEEL = Material(
    "torch", "2.13.0", ("sha256", "1" * 64), "the wheel", "headers", "pkg:pypi/torch@2.13.0",
    "BSD-3-Clause",
)  # fmt: skip
CHECKOUT = Material("cutlass_3_9", "3.9", ("gitCommit", OTHER), "the tag v3.9", "headers")
TOOL = Material("cmake", "4.4.4", ("sha256", "2" * 64), "the program", "tool")


@pytest.fixture
def facts() -> ProvenanceFacts:
    plan = VariantPlan(
        variant=VARIANT,
        framework="torch",
        backend="cpu",
        kernel=KernelInfo("relu", "relu", 1, "Apache-2.0", source="https://git.example/relu"),
        unique_id="1a2b3c4",
        ops_name="_relu_cpu_1a2b3c4",
        requires=Requirements("cpu", "2.13"),
        commit=COMMIT,
        notes=("a note about this machine",),
        toolchain=ToolchainSummary("wheels", (("cutlass_3_9", "3.9 (/home/me/cutlass)"),), "f00"),
    )
    provenance = Provenance(
        Builder("0.1.0", git=GitState(OTHER, dirty=True)), GitState(COMMIT, False)
    )
    return ProvenanceFacts(
        plan=plan,
        provenance=provenance,
        files={"__init__.py": "3" * 64, "metadata.json": "4" * 64},
        inputs={"src/k.cpp": "5" * 64},
        uncommitted=(),
        ingredients=(WHEEL, CHECKOUT, TOOL),
        options={"toolchain": "auto"},
        time=0,
    )


def statement(facts: ProvenanceFacts) -> dict:
    return json.loads(statement_text(facts, ("x.cdx.json", "6" * 64)))


def dependencies(facts: ProvenanceFacts) -> dict[str, dict]:
    listed = statement(facts)["predicate"]["buildDefinition"]["resolvedDependencies"]
    return {entry["name"]: entry for entry in listed}


class TestStatement:
    def test_subjects_are_the_files(self, facts, tmp_path):
        file = tmp_path / "s.json"
        file.write_text(statement_text(facts, ("x.cdx.json", "6" * 64)))
        assert subjects(file) == {
            f"{VARIANT}/__init__.py": "3" * 64,
            f"{VARIANT}/metadata.json": "4" * 64,
        }
        assert byproducts(file) == {"x.cdx.json": "6" * 64}

    def test_the_source(self, facts):
        source = dependencies(facts)["source"]
        assert source["uri"] == f"git+https://git.example/relu@{COMMIT}"
        assert source["digest"] == {"gitCommit": COMMIT}
        assert source["annotations"] == {"dirty": False, "notInTheCommit": []}
        assert dependencies(facts)["source/src/k.cpp"]["digest"] == {"sha256": "5" * 64}

    def test_dirt(self, facts):
        provenance = replace(facts.provenance, kernel=GitState(COMMIT, dirty=True))
        dirty = replace(facts, provenance=provenance, uncommitted=("src/k.cpp",))
        told = dependencies(dirty)["source"]["annotations"]
        assert told == {"dirty": True, "notInTheCommit": ["src/k.cpp"]}

    def test_no_commit(self, facts):
        found = dependencies(replace(facts, provenance=replace(facts.provenance, kernel=None)))
        assert "source" not in found
        assert "source/src/k.cpp" in found

    def test_ingredients(self, facts):
        found = dependencies(facts)
        assert found["torch"]["uri"] == "pkg:pypi/torch@2.13.0"
        assert found["torch"]["digest"] == {"sha256": "1" * 64}
        assert found["torch"]["annotations"]["licence"] == "BSD-3-Clause"
        assert found["cutlass_3_9"]["digest"] == {"gitCommit": OTHER}

    def test_the_builder(self, facts):
        builder = statement(facts)["predicate"]["runDetails"]["builder"]
        assert builder["version"] == {"kbuild": "0.1.0"}
        (checkout,) = builder["builderDependencies"]
        assert checkout["digest"] == {"gitCommit": OTHER}
        assert checkout["annotations"] == {"dirty": True}

    def test_nothing_of_this_machine(self, facts):
        text = statement_text(facts, ("x", "y")) + sbom_text(facts)
        assert not re.search(r"/home|a note about|f00", text)

    @pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"_type": "other", "subject": []}'])
    def test_no_statement(self, tmp_path, text):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(DamagedFileError, match=r"s\.json` is not an in-toto statement"):
            subjects(tmp_path / "s.json")

    def test_other_readers_take_it(self, facts):
        """Fields are where in-toto and SLSA have them: read by the models of sigstore's library."""
        pytest.importorskip("sigstore")
        from sigstore.dsse import Statement
        from sigstore.dsse._predicate import SLSAPredicateV1_0

        Statement(statement_text(facts, ("x", "y")).encode())
        found = SLSAPredicateV1_0.model_validate(statement(facts)["predicate"])
        assert found.build_definition.build_type == "urn:kbuild:build:v1"


class TestList:
    def components(self, facts: ProvenanceFacts) -> dict[str, dict]:
        return {part["name"]: part for part in json.loads(sbom_text(facts))["components"]}

    def test_follows_the_schema(self, facts):
        pytest.importorskip("cyclonedx")
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        validator = JsonStrictValidator(SchemaVersion.V1_6)
        assert validator.validate_str(sbom_text(facts)) is None
        assert validator.validate_str(sbom_text(facts).replace('"required"', '"maybe"')) is not None

    def test_what_is_in_the_result_and_what_only_worked_on_it(self, facts):
        scopes = {name: part["scope"] for name, part in self.components(facts).items()}
        assert scopes == {"torch": "required", "cutlass_3_9": "required", "cmake": "excluded"}
        (edges,) = json.loads(sbom_text(facts))["dependencies"]
        assert edges["ref"] == VARIANT
        assert [ref.split("@")[0] for ref in edges["dependsOn"]] == ["torch", "cutlass_3_9"]

    def test_licences_and_hashes(self, facts):
        found = self.components(facts)
        assert found["torch"]["licenses"] == [{"expression": "BSD-3-Clause"}]
        assert found["torch"]["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
        assert "licenses" not in found["cmake"]
        assert "hashes" not in found["cutlass_3_9"]
        named = {entry["name"]: entry["value"] for entry in found["cutlass_3_9"]["properties"]}
        assert named["kbuild:gitCommit"] == OTHER

    def test_dates(self, facts):
        assert json.loads(sbom_text(facts))["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
        undated = sbom_text(replace(facts, time=None))
        assert "timestamp" not in json.loads(undated)["metadata"]
