"""From a worker's description of a source to its functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbuild.languages.base import Function
from kbuild.languages.spec.arguments import KernelParameter
from kbuild.languages.spec.values import Candidate


def functions_of(answer: Mapping[str, Any]) -> Mapping[str, Function]:
    """The functions by name, in the source's order."""
    return {one["name"]: _function(one) for one in answer["functions"]}


def _function(data: Mapping[str, Any]) -> Function:
    computed = tuple(data["computed"])
    parameters = tuple(
        KernelParameter(
            one["name"],
            one["constant"],
            has_value=one.get("optional", False)
            or (one["constant"] and (one["default"] or one["name"] in computed)),
        )
        for one in data["parameters"]
    )
    candidates = tuple(
        Candidate(tuple(one["constants"].items()), tuple(one["options"].items()))
        for one in data["candidates"]
    )
    return Function(
        data["name"],
        parameters,
        candidates,
        tuple(data["key"]),
        computed,
        tuple(data["notes"]),
        data.get("facts", {}),
    )
