"""The provenance of one variant as an in-toto Statement v1 with the predicate of SLSA v1.

The fields are described in docs/reference/provenance.md; the specifications are those of in-toto
(Statement v1) and SLSA (Provenance v1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kbuild.metadata import Builder, GitState, Provenance
from kbuild.plan import VariantPlan
from kbuild.provenance.ingredient import Ingredient
from kbuild.untrusted import read_json, reading

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:kbuild:build:v1"
BUILDER_ID = "urn:kbuild:builder:v1"
_KIND = "an in-toto statement"
_NOT_ASKED_FOR = ("toolchain", "notes", "commit", "dirty", "format")
"""Of the plan: what was found rather than wanted, or is told elsewhere."""


@dataclass(frozen=True)
class Facts:
    """Everything that a statement and a list of ingredients say."""

    plan: VariantPlan
    made: Provenance
    """As the variant's `metadata.json` has it."""
    files: Mapping[str, str]
    """The variant's files: path -> SHA-256 in hex."""
    inputs: Mapping[str, str]
    """The project's files that went in: path -> SHA-256 in hex."""
    uncommitted: tuple[str, ...]
    """Those of them that no commit holds."""
    ingredients: Sequence[Ingredient]
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the command line asked for beside the plan."""
    time: int | None = None
    """Seconds since the epoch that dated things carry; None leaves dates out."""


def statement_text(facts: Facts, bom: tuple[str, str]) -> str:
    """The statement, the same bytes for the same facts.

    Args:
        facts: what is said.
        bom: name and SHA-256 of the list of ingredients.
    """
    variant = facts.plan.variant
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{variant}/{path}", "digest": {"sha256": digest}}
            for path, digest in facts.files.items()
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"buildDefinition": _definition(facts), "runDetails": _details(facts, bom)},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def subjects(path: Path) -> dict[str, str]:
    """The subjects of a statement in a file: name -> SHA-256 in hex.

    Raises:
        DamagedFileError: it is no such statement.
        OSError: the file cannot be read.
    """
    return _named(path, "subject")


def byproducts(path: Path) -> dict[str, str]:
    """What else the build made, as `subjects`."""
    return _named(path, "predicate", "runDetails", "byproducts")


def _named(path: Path, *keys: str) -> dict[str, str]:
    with reading(path, _KIND):
        document: Any = read_json(path, _KIND)
        if document["_type"] != STATEMENT_TYPE:
            raise ValueError(f"`{document['_type']}` is no {STATEMENT_TYPE}")
        for key in keys:
            document = document[key]
        return {str(entry["name"]): str(entry["digest"]["sha256"]) for entry in document}


def _definition(facts: Facts) -> dict[str, Any]:
    plan = {key: value for key, value in asdict(facts.plan).items() if key not in _NOT_ASKED_FOR}
    toolchain, made = facts.plan.toolchain, facts.made.builder
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {"plan": plan, "options": dict(facts.options)},
        "internalParameters": {
            "toolchain": toolchain.source if toolchain else "",
            **({"overruled": dict(made.overruled)} if made.overruled else {}),
        },
        "resolvedDependencies": [
            *_source(facts.made.kernel, facts),
            *_inputs(facts.inputs),
            *map(_dependency, facts.ingredients),
        ],
    }


def _source(kernel: GitState | None, facts: Facts) -> Iterator[dict[str, Any]]:
    """The commit; where the source differs from it, the inputs' digests are what counts."""
    if kernel is None:
        return
    address = facts.plan.kernel.source
    annotations = {"dirty": kernel.dirty, "notInTheCommit": list(facts.uncommitted)}
    yield {
        **({"uri": f"git+{address.removeprefix('git+')}@{kernel.commit}"} if address else {}),
        "name": "source",
        "digest": {"gitCommit": kernel.commit},
        "annotations": annotations,
    }


def _inputs(inputs: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path, digest in inputs.items():
        yield {"name": f"source/{path}", "digest": {"sha256": digest}}


def _dependency(ingredient: Ingredient) -> dict[str, Any]:
    algorithm, value = ingredient.digest
    annotations = {
        "version": ingredient.version,
        "digestOf": ingredient.covers,
        "enters": ingredient.enters,
        "licence": ingredient.licence,
    }
    return {
        **({"uri": ingredient.purl} if ingredient.purl else {}),
        "name": ingredient.name,
        "digest": {algorithm: value},
        "annotations": {key: text for key, text in annotations.items() if text},
    }


def _details(facts: Facts, bom: tuple[str, str]) -> dict[str, Any]:
    name, digest = bom
    return {
        "builder": _builder(facts.made.builder),
        "byproducts": [
            {
                "name": name,
                "digest": {"sha256": digest},
                "mediaType": "application/vnd.cyclonedx+json",
            }
        ],
    }


def _builder(builder: Builder) -> dict[str, Any]:
    described: dict[str, Any] = {"id": BUILDER_ID, "version": {builder.name: builder.version}}
    if builder.git:
        described["builderDependencies"] = [
            {
                "name": builder.name,
                "digest": {"gitCommit": builder.git.commit},
                "annotations": {"dirty": builder.git.dirty},
            }
        ]
    return described
