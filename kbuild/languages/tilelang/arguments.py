"""What the worker is asked for one unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbuild.errors import BuildError
from kbuild.languages.linking import constants_of
from kbuild.languages.spec.arguments import Bound
from kbuild.languages.spec.values import Source
from kbuild.languages.unit import Unit

_ASSUMED = ("divisible", "ones", "int64")


def request_of(unit: Unit, bound: Bound, version: str) -> Mapping[str, Any]:
    """See `Language.request`.

    Args:
        unit: what is compiled.
        bound: its function, with what the op says of its tensors.
        version: of the DSL.

    Raises:
        BuildError: an argument cannot be handed to a TileLang function.
    """
    for key in _ASSUMED:
        if getattr(unit, key):
            what = f"`{bound.function}`: `{key}` says nothing to TileLang"
            raise BuildError(
                what, hint="fix the dimension with `T.const`, or say its type in the kernel"
            )
    return {
        "kernel": unit.kernel,
        "function": bound.function,
        "version": version,
        "arch": unit.target.arch,
        "arguments": [_argument(name, source, unit, bound) for name, source in bound.arguments],
        "constants": constants_of(unit, bound),
    }


def _argument(name: str, source: Source, unit: Unit, bound: Bound) -> dict[str, Any]:
    if source.kind in ("int", "float", "bool"):
        return {"name": name, "kind": source.kind}
    if source.kind != "tensor":
        what = f"`{bound.function}` takes no {source.kind} as `{name}`"
        raise BuildError(what, hint="hand over tensors and numbers")
    if source.name in unit.absent:
        what = f"`{bound.function}` takes `{source.name}`, which may be None"
        raise BuildError(what, hint="write a function without it, and choose by `when`")
    facts = bound.facts(source.name)
    return {
        "name": name,
        "kind": "tensor",
        "dtype": dict(unit.dtypes)[source.name],
        "dims": None if facts.dims is None else list(facts.dims),
        "contiguous": facts.contiguous,
    }
