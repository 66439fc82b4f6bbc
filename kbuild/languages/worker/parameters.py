"""The parameters that a compiled function really has, read from its assembly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$.]+\s*\((?P<list>[^)]*)\)", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?P<words>[^,]+)")
_TYPE = re.compile(r"\.(?P<type>[usfb]\d+)\b")
_ARRAY = re.compile(r"\[(?P<count>\d+)\]")
_ARG = re.compile(r"^ +- (?P<body>.*(?:\n {8}.*)*)", re.MULTILINE)
_FIELD = re.compile(r"\.(?P<key>\w+):\s*(?P<value>\S+)")
_SIZES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}
_DESCRIPTOR = re.compile(r"tensordesc<(?P<dtype>\w+)\[(?P<block>[^]]*)\]>")
_FLAGS = (("nan", "tf32"), ("nan",), ())
_HOST_TYPES = {8: 10, 9: 8, 10: 9}
"""Triton's numbers of element types that differ from `CUtensorMapDataType`."""
_TENSOR_MAP = 128
"""Bytes of a CUtensorMap."""
_POINTER = 8
SCRATCH = ("global_scratch", "profile_scratch")
"""What Triton appends, in order; 3.4 only the first."""


def of_ptx(text: str) -> list[int]:
    """Bytes of each parameter of the only entry."""
    entry = _ENTRY.search(text)
    if entry is None:
        raise RefusalError("the compiler's PTX has no entry")
    return [_bytes(match["words"]) for match in _PARAM.finditer(entry["list"])]


def of_amdgcn(text: str) -> list[int]:
    """Bytes of each parameter, those that the runtime adds left out."""
    found = text.partition(".args:")[2].partition(".group_segment_fixed_size")[0]
    if not text.count(".amdgpu_metadata"):
        raise RefusalError("the compiler's assembly has no metadata")
    rows = (dict(_FIELD.findall(match["body"])) for match in _ARG.finditer(found))
    return [int(row["size"]) for row in rows if not row["value_kind"].startswith("hidden")]


def joined(
    passed: Sequence[tuple[str, str]], mapped: bool, actual: Sequence[int]
) -> list[dict[str, str]]:
    """The parameters of the device function, in order.

    Args:
        passed: name and Triton's type of each argument that was not fixed.
        mapped: whether descriptors are passed as tensor maps.
        actual: bytes of each parameter that the function has.

    Raises:
        RefusalError: the function has others than were expected.
    """
    for flags in _FLAGS:  # releases hand over more and more of them
        expected = [one for name, type_ in passed for one in _parts(name, type_, mapped, flags)]
        own, rest = [_size(one) for one in expected], list(actual[len(expected) :])
        fits = list(actual[: len(own)]) == own
        if fits and len(rest) <= len(SCRATCH) and all(size == _POINTER for size in rest):
            scratch = [{"kind": kind, "type": "*i8", "name": ""} for kind in SCRATCH[: len(rest)]]
            return [*expected, *scratch]
    raise RefusalError(
        f"the compiled function has parameters of {list(actual)} bytes, which is not what "
        f"{[type_ for _, type_ in passed]} come to",
        hint="please report this: a launcher would pass the wrong values",
    )


def tensor_map(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """How the launcher encodes a descriptor.

    Raises:
        RefusalError: it cannot.
    """
    if meta.get("is_im2col"):
        raise RefusalError(f"`{name}`: an im2col descriptor cannot be made by a launcher")
    return {
        "parameter": name,
        "block": list(meta["block_size"]),
        "element_size": meta["elem_size"],
        "element_type": _HOST_TYPES.get(meta["elem_type"], meta["elem_type"]),
        "swizzle": meta["swizzle"],
        "fp4_padded": bool(meta.get("fp4_padded")),
    }


def _parts(name: str, type_: str, mapped: bool, flags: Sequence[str]) -> Iterator[dict[str, str]]:
    """An argument as parameters; a descriptor is several."""
    descriptor = _DESCRIPTOR.fullmatch(type_)
    if descriptor is None:
        yield _parameter(name, type_)
        return
    axes = range(descriptor["block"].count(",") + 1)
    shape, strides = ([f"{name}.{word}.{axis}" for axis in axes] for word in ("shape", "stride"))
    if mapped:
        yield _parameter(name, "tensor_map")
    else:
        yield _parameter(name, "*" + descriptor["dtype"])
        yield from (_parameter(one, "i64") for one in (*shape, *strides))
        yield from (_parameter(f"{name}.{flag}", "u1") for flag in flags)
    yield from (_parameter(one, "i32") for one in shape)
    yield from (_parameter(one, "i64") for one in strides)


def _parameter(name: str, type_: str) -> dict[str, str]:
    if type_.startswith("*"):
        return {"kind": "pointer", "type": type_, "name": name}
    kind = {"t": "tensor_map", "f": "float", "b": "float"}.get(type_[0], "int")
    return {"kind": kind, "type": type_, "name": name}


def _bytes(words: str) -> int:
    type_, array = _TYPE.search(words), _ARRAY.search(words)
    if type_ is None:
        raise RefusalError(f"a parameter `{words.strip()}` that nobody knows")
    return int(type_["type"][1:]) // 8 * (int(array["count"]) if array else 1)


def _size(one: dict[str, str]) -> int:
    if one["kind"] == "tensor_map":
        return _TENSOR_MAP
    return _POINTER if one["kind"] == "pointer" else _SIZES[re.sub(r"\D", "", one["type"])]
