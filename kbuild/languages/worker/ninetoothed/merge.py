"""The configs of a kernel as one Triton function, with constants that choose between them.

A config becomes a function of its own, as NineToothed's generator wrote it. One function with names
that do not change calls them: `block_size == 512` is decided when it is compiled, and so is whether
sizes, strides and positions have 32 bits or 64. Needs nothing but Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kbuild.languages.worker.ninetoothed.module import FIXED, Entry, Variant, free, module, named
from kbuild.languages.worker.protocol import RefusalError

TRITON = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    **{
        f"{sign}{bits}": f"{word}{bits}"
        for sign, word in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
}
"""NineToothed's dtypes -> Torch's, which are those of `triton.language` as well."""
_KINDS = ("pointer", "size", "stride", "scalar", *FIXED)
_OPTIONS = ("num_warps", "num_stages")
WIDE = "wide"
"""The constant that says whether a call needs 64 bits to reach every element."""


class Merged(NamedTuple):
    """A kernel as kbuild compiles it."""

    text: str
    facts: dict[str, Any]


def merge(name: str, meta: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> Merged:
    """One kernel of all its configs.

    Raises:
        RefusalError: the configs cannot be told apart, or belong to different functions.
    """
    _judge(name, configs)
    parameters = list(_parameters(configs))
    taken = {one["name"] for one in parameters} | set(configs[0]["tensors"]) | set(_OPTIONS)
    constants = {one: free(one, taken) for one in _constants(meta, configs)}
    wide = free(WIDE, taken)
    variants = _variants(name, constants, configs)
    names = [one["name"] for one in parameters if one["kind"] not in FIXED]
    fixed = [one["name"] for one in parameters if one["kind"] in FIXED]
    entry = Entry(name, names, [*constants.values(), *fixed], wide, variants)
    facts = {
        "name": name,
        "parameters": [
            *parameters,
            *(
                {"name": one, "kind": "constant", "tensor": "", "axis": 0}
                for one in constants.values()
            ),
        ],
        "wide": wide,
        "tensors": {tensor: _tensor(tensor, configs) for tensor in configs[0]["tensors"]},
        "written": sorted({tensor for config in configs for tensor in config["written"]}),
        "configs": [_config(config, constants, variants) for config in configs],
    }
    return Merged(module(entry, configs), facts)


def _judge(name: str, configs: Sequence[Mapping[str, Any]]) -> None:
    first = configs[0]
    for index, config in enumerate(configs[1:], 2):
        where = f"config {index} of `{name}`"
        if list(config["tensors"]) != list(first["tensors"]):
            raise RefusalError(
                f"{where} has other parameters than the first: use a kernel for each"
            )
        for tensor, facts in config["tensors"].items():
            other = first["tensors"][tensor]
            if len(facts["shape"]) != len(other["shape"]):
                raise RefusalError(
                    f"{where}: `{tensor}` has {len(facts['shape'])} dimensions,"
                    f" {len(other['shape'])} in the first: use a kernel for each"
                )


def _parameters(configs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Everything that any config needs from a call, tensor by tensor."""
    wanted = {
        (one["tensor"], one["kind"], one["axis"])
        for config in configs
        for one in config["parameters"]
        if one["kind"] != "constant"
    }
    # A size that is a constant in one config is one in all of them.
    wanted -= {(tensor, "size", axis) for tensor, kind, axis in wanted if kind == "fixed"}
    seen = set()
    for tensor in configs[0]["tensors"]:
        for kind in _KINDS:
            for axis in sorted(a for t, k, a in wanted if (t, k) == (tensor, kind)):
                name = named(tensor, kind, axis)
                if name in seen:
                    raise RefusalError(
                        f"two parameters would be called `{name}`: rename `{tensor}`"
                    )
                seen.add(name)
                yield {"name": name, "kind": kind, "tensor": tensor, "axis": axis}


def _constants(meta: Sequence[str], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The arguments of `premake` that differ between configs, and those that are tuned."""
    names = dict.fromkeys(name for config in configs for name in config["arguments"])
    missing = object()

    def differs(name: str) -> bool:
        values = [config["arguments"].get(name, missing) for config in configs]
        return any(type(one) is not type(values[0]) or one != values[0] for one in values)

    return [name for name in names if name in meta or differs(name)]


def _variants(
    name: str, constants: Mapping[str, str], configs: Sequence[Mapping[str, Any]]
) -> list[Variant]:
    """Every config's function, those with the same text once."""
    sets: dict[str, list[Mapping[str, Any]]] = {}
    for config in configs:
        _keep(sets.setdefault(_key(config, constants), []), config, name)
    texts: dict[str, str] = {}
    found = []
    for group in sets.values():
        by_dtype = len({_text(config) for config in group}) > 1
        for config in group if by_dtype else group[:1]:
            callee = texts.setdefault(_text(config), f"{name}_{len(texts)}")
            asked = [*_asked(config, constants), *(_dtypes(config) if by_dtype else ())]
            found.append(Variant(tuple(asked), callee, config))
    return found


def _key(config: Mapping[str, Any], constants: Mapping[str, str]) -> str:
    return json.dumps([config["arguments"].get(one) for one in constants])


def _keep(group: list[Mapping[str, Any]], config: Mapping[str, Any], name: str) -> None:
    """Add a config to those with the same constants, unless it only has other options."""
    for other in group:
        if _dtypes(other) == _dtypes(config):
            if (_text(other), other["grid"]) != (_text(config), config["grid"]):
                raise RefusalError(
                    f"`{name}` has configs that differ in nothing that a call can have"
                )
            return
        if _shapes(other) != _shapes(config) or other["grid"] != config["grid"]:
            raise RefusalError(f"`{name}` has configs whose shapes or grids depend on a dtype")
    group.append(config)


def _shapes(config: Mapping[str, Any]) -> list[Any]:
    return [facts["shape"] for facts in config["tensors"].values()]


def _text(config: Mapping[str, Any]) -> str:
    return json.dumps(
        [
            config["source"],
            config["parameters"],
            [one["value"] for one in config["tensors"].values()],
        ]
    )


def _asked(config: Mapping[str, Any], constants: Mapping[str, str]) -> list[str]:
    return [f"{short} == {config['arguments'].get(name)!r}" for name, short in constants.items()]


def _dtypes(config: Mapping[str, Any]) -> list[str]:
    return [
        f"{named(name, 'pointer', 0)}.dtype.element_ty == tl.{TRITON[facts['dtype']]}"
        for name, facts in config["tensors"].items()
        if facts["shape"] and facts["dtype"]
    ]


def _tensor(name: str, configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    facts = [config["tensors"][name] for config in configs]
    bounds = zip(*(one["bounds"] for one in facts), strict=True)
    return {
        "rank": len(facts[0]["shape"]),
        "constant": all(one["constant"] for one in facts),
        "bounds": [min((b for b in column if b), default=None) for column in bounds],
    }


def _config(
    config: Mapping[str, Any], constants: Mapping[str, str], variants: Sequence[Variant]
) -> dict[str, Any]:
    same = [one for one in variants if _key(one.config, constants) == _key(config, constants)]
    return {
        "constants": {short: config["arguments"].get(name) for name, short in constants.items()},
        "options": config["options"],
        "grid": config["grid"],
        "shapes": {name: one["shape"] for name, one in config["tensors"].items()},
        "dtypes": {name: TRITON.get(one["dtype"]) for name, one in config["tensors"].items()},
        "by_dtype": len(same) > 1,
    }
