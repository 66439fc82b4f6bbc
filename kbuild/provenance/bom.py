"""The ingredients of one variant as a CycloneDX 1.6 document.

What can be in the result is `required`; what only worked on it is `excluded`, CycloneDX's word for
components that are told of although they are not delivered.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from kbuild.provenance.ingredient import Ingredient
from kbuild.provenance.statement import Facts

_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:kbuild:bom:v1")


def bom_text(facts: Facts) -> str:
    """The document, the same bytes for the same facts."""
    document = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": _metadata(facts),
        "components": [_component(ingredient) for ingredient in facts.ingredients],
        "dependencies": [
            {
                "ref": facts.plan.variant,
                "dependsOn": [_reference(part) for part in facts.ingredients if part.is_contained],
            }
        ],
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    serial = {"serialNumber": uuid.uuid5(_NAMESPACE, text).urn}
    return json.dumps(_after_format(document, serial), indent=1, ensure_ascii=False) + "\n"


def _after_format(document: Mapping[str, Any], serial: Mapping[str, str]) -> dict[str, Any]:
    first = {key: document[key] for key in ("$schema", "bomFormat", "specVersion")}
    return {**first, **serial, **document}


def _metadata(facts: Facts) -> dict[str, Any]:
    builder, kernel = facts.made.builder, facts.plan.kernel
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


def _component(ingredient: Ingredient) -> dict[str, Any]:
    algorithm, value = ingredient.digest
    known = {"sha256": {"hashes": [{"alg": "SHA-256", "content": value}]}}
    properties = {"kbuild:enters": ingredient.enters, "kbuild:digest-of": ingredient.covers}
    if algorithm not in known:
        properties[f"kbuild:{algorithm}"] = value
    return {
        "type": "library" if ingredient.is_contained else "application",
        "bom-ref": _reference(ingredient),
        "name": ingredient.name,
        "version": ingredient.version,
        "scope": "required" if ingredient.is_contained else "excluded",
        **known.get(algorithm, {}),
        **({"licenses": [{"expression": ingredient.licence}]} if ingredient.licence else {}),
        **({"purl": ingredient.purl} if ingredient.purl else {}),
        "properties": [{"name": name, "value": text} for name, text in properties.items()],
    }


def _reference(ingredient: Ingredient) -> str:
    return f"{ingredient.name}@{ingredient.version}#{ingredient.digest[1][:12]}"
