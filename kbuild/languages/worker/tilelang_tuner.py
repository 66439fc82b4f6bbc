"""What `@tilelang.autotune` says of a function: candidates, and what the best one depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kbuild.languages.worker.functions import Unknown, UnknownError

_PASSES = "pass_configs"
_DTYPE = "dtype"


def candidates_of(
    name: str, tuner: Any, parameters: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The candidates as JSON, and a sentence for whatever was not taken over.

    Args:
        name: of the function.
        tuner: what the decorator made; None without one.
        parameters: of the function, in order.
    """
    configs = getattr(tuner, "configs", None)
    if configs is None:
        return [], []
    notes: list[str] = []
    if callable(configs):
        configs, why = _called(configs, parameters)
        if why:
            return [], [f"the `configs` of `{name}` {why}: none is taken over"]
    if isinstance(configs, (Mapping, str)) or not hasattr(configs, "__iter__"):
        words = f"the `configs` of `{name}` are no list of dictionaries: none is taken over"
        return [], [words]
    found: list[dict[str, Any]] = []
    for config in configs:
        constants, said = _constants(name, config)
        notes += [note for note in said if note not in notes]
        candidate = {"constants": constants, "options": {}}
        if constants is not None and candidate not in found:
            found.append(candidate)
    return found, notes


def key_of(tuner: Any, arguments: Sequence[str], tensors: Mapping[str, Sequence[str]]) -> list[str]:
    """What it tunes anew for: numbers by name, dimensions as `x.shape.0`.

    Args:
        tuner: see `candidates_of`.
        arguments: of a call, without results and fractions.
        tensors: those that have dimensions, with the names of these.
    """
    if tuner is None:
        return []
    left_out = set(getattr(tuner, "do_not_specialize", None) or ())
    return list(_key(left_out, arguments, tensors))


def _key(
    left_out: set[str], arguments: Sequence[str], tensors: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    seen: set[str] = set()
    for name in arguments:
        if name in left_out:
            continue
        if name not in tensors:
            yield name
        for axis, dimension in enumerate(tensors.get(name, ())):
            if dimension in left_out or dimension in seen:
                continue
            seen |= {dimension} - {""}
            yield f"{name}.shape.{axis}"


def _called(make: Callable[..., Any], parameters: Sequence[str]) -> tuple[Any, str]:
    """What a function gives for a call that nobody knows; or why it cannot say."""
    positional, named = [], {}
    free = iter(parameters)
    for one in inspect.signature(make).parameters.values():
        if one.default is not one.empty or one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            continue
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = Unknown(one.name)
        else:
            positional.append(Unknown(next(free, one.name)))
    try:
        found = make(*positional, **named)
        return (list(found) if hasattr(found, "__next__") else found), ""
    except UnknownError as unknown:
        return None, f"ask for `{unknown}`, which only a call knows"
    except Exception as error:  # noqa: BLE001 - the author's code
        return None, f"say {type(error).__name__}: {error}"


def _constants(name: str, config: Any) -> tuple[dict[str, Any] | None, list[str]]:
    if not isinstance(config, Mapping):
        return None, [f"`{name}` has a candidate that is no dictionary: left out"]
    if config.get(_PASSES):
        words = f"`{name}` has candidates with `{_PASSES}` of their own: left out"
        return None, [f"{words}; a function with `@tilelang.jit({_PASSES}=...)` holds them"]
    found = {}
    for key, value in config.items():
        if key == _PASSES:
            continue
        plain = _plain(value)
        if plain is None and value is not None:
            return None, [f"`{name}` has a candidate with {key} = {value!r}: left out"]
        found[key] = plain
    return found, []


def _plain(value: Any) -> Any:
    """The value as JSON: a dtype by its name; None for what has no place there."""
    if type(value) in {bool, int, float, str}:
        return value
    is_type = type(value).__name__.lower() == _DTYPE or type(value).__name__ == "DataType"
    return str(value) if is_type else None
