"""The parameters that a compiled function really has, read from its assembly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kbuild.languages.worker.protocol import Refusal

_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$.]+\s*\((?P<list>[^)]*)\)", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?P<words>[^,]+)")
_TYPE = re.compile(r"\.(?P<type>[usfb]\d+)\b")
_ARRAY = re.compile(r"\[(?P<count>\d+)\]")
_ARG = re.compile(r"^ +- (?P<body>.*(?:\n {8}.*)*)", re.MULTILINE)
_FIELD = re.compile(r"\.(?P<key>\w+):\s*(?P<value>\S+)")
_SIZES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}
TENSOR_MAP = 128
"""Bytes of a CUtensorMap."""
SCRATCH = ("global_scratch", "profile_scratch")
"""What Triton appends, in order; 3.4 only the first."""


def of_ptx(text: str) -> list[int]:
    """Bytes of each parameter of the only entry."""
    entry = _ENTRY.search(text)
    if entry is None:
        raise Refusal("the compiler's PTX has no entry")
    return [_bytes(match["words"]) for match in _PARAM.finditer(entry["list"])]


def of_amdgcn(text: str) -> list[int]:
    """Bytes of each parameter, those that the runtime adds left out."""
    found = text.partition(".args:")[2].partition(".group_segment_fixed_size")[0]
    if not text.count(".amdgpu_metadata"):
        raise Refusal("the compiler's assembly has no metadata")
    rows = (dict(_FIELD.findall(match["body"])) for match in _ARG.finditer(found))
    return [int(row["size"]) for row in rows if not row["value_kind"].startswith("hidden")]


def joined(expected: Sequence[dict[str, str]], actual: Sequence[int]) -> list[dict[str, str]]:
    """The expected parameters, then scratch memory.

    Args:
        expected: kind, type and name of each that was bound.
        actual: bytes of each that the function has.

    Raises:
        Refusal: the function has others.
    """
    own = [_size(one) for one in expected]
    rest = list(actual[len(own) :])
    if list(actual[: len(own)]) != own or len(rest) > len(SCRATCH) or any(n != 8 for n in rest):  # noqa: PLR2004
        raise Refusal(
            f"the compiled function has parameters of {list(actual)} bytes, where {own} and "
            "scratch memory were expected",
            hint="please report this: the launcher would pass the wrong values",
        )
    scratch = [{"kind": kind, "type": "*i8", "name": ""} for kind in SCRATCH[: len(rest)]]
    return [*expected, *scratch]


def parameter(name: str, type_: str) -> dict[str, Any]:
    """Kind, type and name of an argument with Triton's type."""
    if type_.startswith("*"):
        kind = "pointer"
    elif type_ == "tensor_map":
        kind = "tensor_map"
    else:
        kind = "float" if type_[0] in "fb" else "int"
    return {"kind": kind, "type": type_, "name": name}


def _bytes(words: str) -> int:
    type_, array = _TYPE.search(words), _ARRAY.search(words)
    if type_ is None:
        raise Refusal(f"a parameter `{words.strip()}` that nobody knows")
    return int(type_["type"][1:]) // 8 * (int(array["count"]) if array else 1)


def _size(one: dict[str, str]) -> int:
    if one["kind"] == "tensor_map":
        return TENSOR_MAP
    return 8 if one["kind"] == "pointer" else _SIZES[re.sub(r"\D", "", one["type"])]
