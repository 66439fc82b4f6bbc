"""From a worker's description of a source to its functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kbuild.errors import BuildError
from kbuild.languages.base import Function
from kbuild.languages.spec.arguments import KernelParameter
from kbuild.languages.spec.values import Candidate
from kbuild.languages.target import Target

_SAME = {
    "parameters": "parameters",
    "key": "arguments in its key",
    "computed": "computed constants",
    "facts": "tensors",
}
"""What a function has to say alike for every arch -> what that is called."""


def functions_of(kernel: str, answers: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Function]:
    """The functions by name, in the source's order.

    A source may bring other candidates for another arch; each is then for its archs alone.

    Args:
        kernel: the section.
        answers: arch, as `build.toml` writes it -> what the source says where it is told of that.

    Raises:
        BuildError: a function takes other arguments on another arch.
    """
    found: dict[str, dict[str, Function]] = {}
    for arch, answer in answers.items():
        for one in answer["functions"]:
            found.setdefault(one["name"], {})[arch] = _function(one)
    return {name: _joined(kernel, functions) for name, functions in found.items()}


def arch_of(target: Target) -> str:
    """An arch that has the devices of a target, as `build.toml` writes it."""
    capability = target.capability
    return target.arch if capability is None else f"{capability.major}.{capability.minor}"


def _joined(kernel: str, functions: Mapping[str, Function]) -> Function:
    (first, function), *others = functions.items()
    for arch, other in others:
        for what, words in _SAME.items():
            if getattr(other, what) != getattr(function, what):
                said = f"kernel.{kernel}: `{function.name}` has other {words} for {arch}"
                raise BuildError(
                    f"{said} than for {first}: its source asks which it is compiled for",
                    hint="write two functions, or build for these archs in two sections",
                )
    notes = dict.fromkeys(note for one in functions.values() for note in one.notes)
    candidates = tuple(_candidates(functions))
    return replace(function, candidates=candidates, notes=tuple(notes))


def _candidates(functions: Mapping[str, Function]) -> Iterator[Candidate]:
    """Those of all archs; for some archs alone, where these have others."""
    lists = [one.candidates for one in functions.values()]
    if all(one == lists[0] for one in lists):
        yield from lists[0]
        return
    for candidates in dict.fromkeys(lists):
        archs = tuple(arch for arch, one in functions.items() if one.candidates == candidates)
        for candidate in candidates:
            yield replace(candidate, archs=archs)


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
