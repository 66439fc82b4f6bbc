"""The provenance documents of a variant: an in-toto statement (SLSA v1) and a CycloneDX SBOM."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from kbuild.plan.metadata import GitState, Provenance
from kbuild.plan.plan import VariantPlan
from kbuild.system.untrusted import read_json, reading

Enters = Literal["tool", "headers", "static", "device", "interface"]
"""Role of a material: it only worked on the files; its inline code is compiled in; it is linked in;
it is linked into device code; only names and versions of functions were taken from it."""


@dataclass(frozen=True, order=True)
class Material:
    """A wheel, a package, a checkout, a program or a folder of headers."""

    name: str
    version: str
    digest: tuple[str, str]
    """Algorithm as in-toto names it (`sha256`, `gitCommit`), and the value in hex."""
    covers: str
    """The thing that the digest covers: `the wheel`, `the program and those that it starts`."""
    enters: Enters
    purl: str = ""
    """Package URL; empty if no ecosystem has the thing."""
    licence: str = ""
    """SPDX expression as its publisher declares it; empty where nobody here knows."""

    @property
    def is_contained(self) -> bool:
        """True when code of it can be in the result."""
        return self.enters in ("headers", "static", "device")


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:kbuild:build:v1"
BUILDER_ID = "urn:kbuild:builder:v1"
_KIND = "an in-toto statement"
_OMITTED_PLAN_KEYS = ("toolchain", "notes", "commit", "dirty", "format")
"""Keys of the plan that kbuild found out by itself, or that stand elsewhere in the statement."""


@dataclass(frozen=True)
class ProvenanceFacts:
    """Facts of a statement and an SBOM."""

    plan: VariantPlan
    provenance: Provenance
    """Provenance in the variant's `metadata.json`."""
    files: Mapping[str, str]
    """The variant's files: path -> SHA-256 in hex."""
    inputs: Mapping[str, str]
    """The project's files that went in: path -> SHA-256 in hex."""
    uncommitted: tuple[str, ...]
    """Files that no commit holds."""
    ingredients: Sequence[Material]
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the command line beside the plan."""
    time: int | None = None
    """Seconds since the epoch that dated things carry; None leaves dates out."""


def statement_text(facts: ProvenanceFacts, bom: tuple[str, str]) -> str:
    """The statement, the same bytes for the same facts."""
    variant = facts.plan.variant
    document = {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": f"{variant}/{path}", "digest": {"sha256": digest}}
            for path, digest in facts.files.items()
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": _build_definition(facts),
            "runDetails": _run_details(facts, bom),
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def subjects(path: Path) -> dict[str, str]:
    """The subjects of a statement in a file: name -> SHA-256 in hex.

    Raises:
        DamagedFileError: it is not such a statement.
        OSError: the file cannot be read.
    """
    return _named_digests(path, "subject")


def byproducts(path: Path) -> dict[str, str]:
    """Further files that the build made, as `subjects`."""
    return _named_digests(path, "predicate", "runDetails", "byproducts")


def _named_digests(path: Path, *keys: str) -> dict[str, str]:
    with reading(path, _KIND):
        document: Any = read_json(path, _KIND)
        if document["_type"] != STATEMENT_TYPE:
            raise ValueError(f"`{document['_type']}` is no {STATEMENT_TYPE}")
        for key in keys:
            document = document[key]
        return {str(entry["name"]): str(entry["digest"]["sha256"]) for entry in document}


def _build_definition(facts: ProvenanceFacts) -> dict[str, Any]:
    plan = {
        key: value for key, value in asdict(facts.plan).items() if key not in _OMITTED_PLAN_KEYS
    }
    toolchain, builder = facts.plan.toolchain, facts.provenance.builder
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {"plan": plan, "options": dict(facts.options)},
        "internalParameters": {
            "toolchain": toolchain.source if toolchain else "",
            **({"overruled": dict(builder.overruled)} if builder.overruled else {}),
            **({"notRun": list(builder.not_run)} if builder.not_run else {}),
        },
        "resolvedDependencies": [
            *_source_dependency(facts.provenance.kernel, facts),
            *(
                {"name": f"source/{path}", "digest": {"sha256": digest}}
                for path, digest in facts.inputs.items()
            ),
            *map(_dependency, facts.ingredients),
        ],
    }


def _source_dependency(kernel: GitState | None, facts: ProvenanceFacts) -> Iterator[dict[str, Any]]:
    """The commit as a dependency; if the source differs, the digests of the inputs identify it."""
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


def _dependency(ingredient: Material) -> dict[str, Any]:
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


def _run_details(facts: ProvenanceFacts, bom: tuple[str, str]) -> dict[str, Any]:
    name, digest = bom
    builder = facts.provenance.builder
    described: dict[str, Any] = {"id": BUILDER_ID, "version": {builder.name: builder.version}}
    if builder.git:
        described["builderDependencies"] = [
            {
                "name": builder.name,
                "digest": {"gitCommit": builder.git.commit},
                "annotations": {"dirty": builder.git.dirty},
            }
        ]

    return {
        "builder": described,
        "byproducts": [
            {
                "name": name,
                "digest": {"sha256": digest},
                "mediaType": "application/vnd.cyclonedx+json",
            }
        ],
    }


_SBOM_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
_SBOM_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kbuild:bom:v1")


def sbom_text(facts: ProvenanceFacts) -> str:
    """The document, the same bytes for the same facts."""
    document = {
        "$schema": _SBOM_SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": _sbom_metadata(facts),
        "components": [_sbom_component(ingredient) for ingredient in facts.ingredients],
        "dependencies": [
            {
                "ref": facts.plan.variant,
                "dependsOn": [
                    _sbom_reference(part) for part in facts.ingredients if part.is_contained
                ],
            }
        ],
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    serial = {"serialNumber": uuid.uuid5(_SBOM_NAMESPACE, text).urn}
    first = {key: document[key] for key in ("$schema", "bomFormat", "specVersion")}
    return json.dumps({**first, **serial, **document}, indent=1, ensure_ascii=False) + "\n"


def _sbom_metadata(facts: ProvenanceFacts) -> dict[str, Any]:
    builder, kernel = facts.provenance.builder, facts.plan.kernel
    dated = (
        {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(facts.time))}
        if facts.time is not None
        else {}
    )
    tool = {"type": "application", "name": builder.name, "version": builder.version}
    return {
        **dated,
        "tools": {"components": [tool]},
        "component": {
            "type": "library",
            "bom-ref": facts.plan.variant,
            "name": kernel.name,
            "version": str(kernel.version),
            "licenses": [{"license": {"name": kernel.license}}],
            "components": [
                {"type": "file", "name": path, "hashes": [{"alg": "SHA-256", "content": digest}]}
                for path, digest in facts.files.items()
            ],
        },
    }


def _sbom_component(ingredient: Material) -> dict[str, Any]:
    algorithm, value = ingredient.digest
    known = {"sha256": {"hashes": [{"alg": "SHA-256", "content": value}]}}
    properties = {"kbuild:enters": ingredient.enters, "kbuild:digest-of": ingredient.covers}
    if algorithm not in known:
        properties[f"kbuild:{algorithm}"] = value
    return {
        "type": "library" if ingredient.is_contained else "application",
        "bom-ref": _sbom_reference(ingredient),
        "name": ingredient.name,
        "version": ingredient.version,
        "scope": "required" if ingredient.is_contained else "excluded",
        **known.get(algorithm, {}),
        **({"licenses": [{"expression": ingredient.licence}]} if ingredient.licence else {}),
        **({"purl": ingredient.purl} if ingredient.purl else {}),
        "properties": [{"name": name, "value": text} for name, text in properties.items()],
    }


def _sbom_reference(ingredient: Material) -> str:
    return f"{ingredient.name}@{ingredient.version}#{ingredient.digest[1][:12]}"
