"""Reads compilers' output: parameters of device functions, and how they use memory.

Parameters come from PTX, cubins and AMDGCN assembly. Triton's IR and C++ tell which arguments'
memory is read or added to before it is written.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.dsl.worker.protocol import RefusalError

_SIGNATURE = re.compile(r"^\s*tt\.func (public )?")
_PARAMETER = re.compile(r"%([\w.$-]+): (?:[^%]*?loc\(\"([\w.]+)\")?")
_OPERATION = re.compile(r"^\s*(?:(%[\w.$-]+)(?::\d+)? = )?\"?([a-z_]+\.[\w.]+)\"?(.*)$")
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_PARTITION = re.compile(r"^\s*partition\d+\(")
"""Beginning of a partition: code of some warps of a Gluon function. Its arguments are those of
the preceding operation: `ttg.warp_specialize(%x, %out)`, `partition0(%arg0: ..., %arg1: ...)`."""
_CARRIED = re.compile(r"(?:iter_args|^ ?)\((%.*?)\) (?:->|:)")
_PAIR = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")
_MOVES = {
    "tt.splat", "tt.addptr", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
    "tt.advance", "tt.bitcast", "tt.make_tensor_ptr", "tt.make_tensor_descriptor",
    "ttg.convert_layout",
}  # fmt: skip
"""Operations whose result points to the memory of their first operand."""
_READS = {
    "tt.load", "tt.descriptor_load", "tt.descriptor_gather", "ttg.async_copy_global_to_local",
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather",
}  # fmt: skip
_WRITES = {
    "tt.store", "tt.descriptor_store", "tt.descriptor_scatter",
    "ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter",
}  # fmt: skip
_ADDS = {"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce", "ttng.async_tma_reduce"}
_HARMLESS = ("arith.", "scf.", "cf.", "math.", "tt.return", "tt.print", "tt.assert")
"""Prefixes of operations that do not write through an address; any other operation may."""
_EXCHANGE = re.compile(r"^ (?:exch|xchg)\b")


class MemoryAccess:
    """The first and later uses of memory, by argument."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._written: set[str] = set()

    def use(self, name: str, how: str) -> None:
        """Record that an argument's memory is read, written or added to."""
        self._first.setdefault(name, how)
        if how == "write":
            self._written.add(name)

    def to_json(self) -> dict[str, list[str]]:
        """JSON object: arguments that are only added to, and those read before written."""
        adds = [n for n, how in self._first.items() if how == "add" and n not in self._written]
        reads = [n for n, how in self._first.items() if how != "write" and n not in adds]
        return {"adds": sorted(adds), "reads": sorted(reads)}


def memory_access(text: str) -> dict[str, list[str]]:
    """Memory access of a function in Triton's dialect; for Gluon, its dialect for GPUs.

    The text includes the functions that it calls.
    """
    reader = _DialectReader()
    for line in text.splitlines():
        reader.read(line)
    return reader.access.to_json()


class _DialectReader:
    """Follows addresses from a function's parameters to their uses."""

    def __init__(self) -> None:
        self.access = MemoryAccess()
        self._origin: dict[str, str] = {}
        """Value -> the parameter whose memory it points to."""
        self._captured: list[str | None] = []
        """Parameters that the operands of the last `warp_specialize` point to."""

    def read(self, line: str) -> None:
        signature, match = _SIGNATURE.match(line), _OPERATION.match(line)
        if signature is not None:
            parameters = _PARAMETER.findall(line) if signature[1] else ()
            self._origin = {f"%{name}": source_name or name for name, source_name in parameters}
        elif _PARTITION.match(line):
            inner = (name for name, _ in _PARAMETER.findall(line))
            pairs = zip(inner, self._captured, strict=False)
            self._origin.update({f"%{own}": o for own, o in pairs if o is not None})
        elif match is not None and match[2] == "ttg.warp_specialize":
            values = _VALUE.findall(match[3].partition(")")[0])
            self._captured = [self._origin.get(value) for value in values]
        elif match is not None and match[2] in ("scf.for", "scf.while"):
            self._origin.update(_carried(match[1], match[3], self._origin))
        elif match is not None:
            self._use(match[2], match[3])
            if match[1] is not None:
                self._define(match[1], match[2], match[3])

    def _use(self, operation: str, rest: str) -> None:
        values = _VALUE.findall(rest)
        if operation in _READS | _WRITES | _ADDS:
            if values and values[0] in self._origin:
                self.access.use(self._origin[values[0]], _how(operation, rest))
        elif operation not in _MOVES and not operation.startswith(_HARMLESS):
            for value in values:
                if value in self._origin:
                    self.access.use(self._origin[value], "write")

    def _define(self, result: str, operation: str, rest: str) -> None:
        values = _VALUE.findall(rest)
        if operation in _MOVES:
            values = values[:1]
        # A `select` between two pointers is one; other results are no addresses.
        elif operation != "arith.select":
            values = []
        owner = next((self._origin[value] for value in values if value in self._origin), None)
        self._origin.pop(result, None)  # an earlier region may have used the name
        if owner is not None:
            self._origin[result] = owner


def _how(operation: str, rest: str) -> str:
    if operation in _READS:
        return "read"
    return "write" if operation in _WRITES or _EXCHANGE.match(rest) else "add"


def _carried(result: str | None, rest: str, origin: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names of a loop's carried values, inside and after it, with their parameters."""
    match = _CARRIED.search(rest)
    pairs = _PAIR.findall(match[1]) if match else []
    for at, (inner, outer) in enumerate(pairs):
        if outer in origin:
            yield inner, origin[outer]
            yield f"{result}" if len(pairs) == 1 else f"{result}#{at}", origin[outer]


_BODY = re.compile(r"__global__[^;{]*\{(.*?)\n\}", re.DOTALL)
_ATOMIC = re.compile(r"\b[Aa]tomic(?!Load)\w*(?:<[^>]*>)?\((?:[(&\s]|\(\w+\s*\*\))*([A-Za-z_]\w*)")


def memory_access_of_cxx(text: str, names: Sequence[str]) -> dict[str, Any]:
    """Memory access of kernels in C++, by the names of their parameters.

    Only additions are reported, and only if every line that names the argument adds to it.
    """
    uses: dict[str, set[bool]] = {}
    lines = [line for body in _BODY.findall(text) for line in body.splitlines()]
    for line in lines:
        atomic = _ATOMIC.search(line)
        for name in names:
            if re.search(rf"\b{re.escape(name)}(?:_desc)?\b", line):
                uses.setdefault(name, set()).add(atomic is not None and atomic[1] == name)
    return {"adds": sorted(name for name, kinds in uses.items() if kinds == {True}), "reads": []}


_ENTRY = re.compile(r"\.visible\s+\.entry\s+[\w$.]+\s*\((?P<list>[^)]*)\)", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?P<type>[^,]+)")
_TYPE = re.compile(r"\.(?P<type>[usfb]\d+)\b")
_ARRAY = re.compile(r"\[(?P<count>\d+)\]")
_ARG = re.compile(r"^ +- (?P<body>.*(?:\n {8}.*)*)", re.MULTILINE)
_FIELD = re.compile(r"\.(?P<key>\w+):\s*(?P<value>\S+)")
_SIZES = {"1": 1, "8": 1, "16": 2, "32": 4, "64": 8}
_DESCRIPTOR = re.compile(r"tensordesc<(?P<dtype>\w+)\[(?P<block>[^]]*)\]>")
_FLAGS = (("nan", "tf32"), ("nan",), ())
_HOST_TYPES = {8: 10, 9: 8, 10: 9}
"""Triton's numbers of element types -> `CUtensorMapDataType`, where they differ."""
_TENSOR_MAP = 128
"""Bytes of a CUtensorMap."""
_POINTER = 8
SCRATCH = ("global_scratch", "profile_scratch")
"""Parameters that Triton appends, in order; 3.4 has only the first."""


def parameter_sizes_of_ptx(text: str) -> list[int]:
    """Bytes of each parameter of the only entry."""
    entry = _ENTRY.search(text)
    if entry is None:
        raise RefusalError("the compiler's PTX has no entry")
    return [_bytes(match["type"]) for match in _PARAM.finditer(entry["list"])]


def parameter_sizes_of_amdgcn(text: str) -> list[int]:
    """Bytes of each parameter, without those that the runtime adds."""
    section = text.partition(".args:")[2].partition(".group_segment_fixed_size")[0]
    if not text.count(".amdgpu_metadata"):
        raise RefusalError("the compiler's assembly has no metadata")
    rows = (dict(_FIELD.findall(match["body"])) for match in _ARG.finditer(section))
    return [int(row["size"]) for row in rows if not row["value_kind"].startswith("hidden")]


_ELF = struct.Struct("<40xQ10xHHH")
"""Offset of the section headers, their size and number, and which of them has their names."""
_SECTION = struct.Struct("<I20xQQ24x")
"""Name, offset, size."""
_ATTRIBUTE = struct.Struct("<BBH")
"""Form, attribute, and the value or the number of bytes that follow."""
# `EIFMT_SVAL`, `EIATTR_KPARAM_INFO` and `EIATTR_KPARAM_INFO_V2`, as `cuobjdump -elf` prints them.
_WITH_BYTES, _PARAMETER_INFO, _PARAMETER_INFO_V2 = 4, 0x17, 0x45
_PARAMETER_LAYOUT = struct.Struct("<4xHHI")
"""Ordinal, offset, and a word with the number of bytes and flags."""


def parameter_sizes_of_cubin(code: bytes, entry: str) -> list[int]:
    """Bytes of each parameter of an entry."""
    start, size, count, names = _ELF.unpack_from(code)
    sections = [_SECTION.unpack_from(code, start + size * at) for at in range(count)]
    sizes: dict[int, int] = {}
    for name, offset, length in sections:
        begin = sections[names][1] + name
        if code[begin : code.index(b"\0", begin)].decode() != f".nv.info.{entry}":
            continue
        at = offset
        while at < offset + length:
            form, attribute, value = _ATTRIBUTE.unpack_from(code, at)
            at += _ATTRIBUTE.size
            if form == _WITH_BYTES and attribute in (_PARAMETER_INFO, _PARAMETER_INFO_V2):
                ordinal, _, word = _PARAMETER_LAYOUT.unpack_from(code, at)
                sizes[ordinal] = word >> 18 if attribute == _PARAMETER_INFO else word & 0xFFFF
            at += value if form == _WITH_BYTES else 0
    return [sizes[ordinal] for ordinal in range(len(sizes))]


def device_parameters(
    passed: Sequence[tuple[str, str]], mapped: bool, actual: Sequence[int]
) -> list[dict[str, str]]:
    """Return the parameters of the device function, in order.

    Args:
        passed: name and Triton's type of each argument that was not fixed.
        mapped: True if descriptors are passed as tensor maps.
        actual: bytes of each parameter in the compiled code.

    Raises:
        RefusalError: the function has unexpected parameters.
    """
    for flags in _FLAGS:  # newer releases pass more of them
        expected = [part for name, type_ in passed for part in _parts(name, type_, mapped, flags)]
        own, rest = [_size(part) for part in expected], list(actual[len(expected) :])
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
    """JSON object that tells the launcher how to encode a descriptor.

    Raises:
        RefusalError: the launcher cannot encode it.
    """
    if meta.get("is_im2col"):
        raise RefusalError(f"`{name}`: a launcher cannot make an im2col descriptor")
    return {
        "parameter": name,
        "block": list(meta["block_size"]),
        "element_size": meta["elem_size"],
        "element_type": _HOST_TYPES.get(meta["elem_type"], meta["elem_type"]),
        "swizzle": meta["swizzle"],
        "fp4_padded": bool(meta.get("fp4_padded")),
    }


def _parts(name: str, type_: str, mapped: bool, flags: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the parameters of an argument; a descriptor has several."""
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
        yield from (_parameter(part_name, "i64") for part_name in (*shape, *strides))
        yield from (_parameter(f"{name}.{flag}", "u1") for flag in flags)
    yield from (_parameter(part_name, "i32") for part_name in shape)
    yield from (_parameter(part_name, "i64") for part_name in strides)


def _parameter(name: str, type_: str) -> dict[str, str]:
    if type_.startswith("*"):
        return {"kind": "pointer", "type": type_, "name": name}
    kind = {"t": "tensor_map", "f": "float", "b": "float"}.get(type_[0], "int")
    return {"kind": kind, "type": type_, "name": name}


def _bytes(text: str) -> int:
    type_, array = _TYPE.search(text), _ARRAY.search(text)
    if type_ is None:
        raise RefusalError(f"an unknown parameter `{text.strip()}`")
    return int(type_["type"][1:]) // 8 * (int(array["count"]) if array else 1)


def _size(parameter: dict[str, str]) -> int:
    fixed = {"tensor_map": _TENSOR_MAP, "pointer": _POINTER}.get(parameter["kind"])
    return fixed or _SIZES[re.sub(r"\D", "", parameter["type"])]
