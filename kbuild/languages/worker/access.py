"""How a compiled function uses the memory of its arguments before it writes there.

What an op allocates has no value, so a function that adds to it, or reads it first, computes
nonsense. That is to be seen in what a compiler has made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SIGNATURE = re.compile(r"^\s*tt\.func (public )?")
_PARAMETER = re.compile(r"%([\w.$-]+): (?:[^%]*?loc\(\"([\w.]+)\")?")
_OPERATION = re.compile(r"^\s*(?:(%[\w.$-]+)(?::\d+)? = )?\"?([a-z_]+\.[\w.]+)\"?(.*)$")
_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_CARRIED = re.compile(r"(?:iter_args|^ ?)\((%.*?)\) (?:->|:)")
_PAIR = re.compile(r"(%[\w.$-]+) = (%[\w.$-]+(?:#\d+)?)")
_MOVES = {
    "tt.splat", "tt.addptr", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans",
    "tt.advance", "tt.bitcast", "tt.make_tensor_ptr", "tt.make_tensor_descriptor",
}  # fmt: skip
"""Operations whose result points to where their first operand does."""
_READS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_WRITES = {"tt.store", "tt.descriptor_store", "tt.descriptor_scatter"}
_ADDS = {"tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"}
_HARMLESS = ("arith.", "scf.", "cf.", "math.", "tt.return", "tt.print", "tt.assert")
"""What takes an address and writes nothing there; of anything else nobody knows."""
_EXCHANGE = re.compile(r"^ (?:exch|xchg)\b")


class Access:
    """The order in which memory is used, by argument."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._written: set[str] = set()

    def use(self, name: str, how: str) -> None:
        """Note that an argument's memory is read, written or added to."""
        self._first.setdefault(name, how)
        if how == "write":
            self._written.add(name)

    def to_json(self) -> dict[str, list[str]]:
        """What the function does nothing but add to, and what else it reads before it writes."""
        adds = [n for n, how in self._first.items() if how == "add" and n not in self._written]
        reads = [n for n, how in self._first.items() if how != "write" and n not in adds]
        return {"adds": sorted(adds), "reads": sorted(reads)}


def of_ttir(text: str) -> dict[str, list[str]]:
    """Of a function of Triton's.

    Args:
        text: its first dialect, where the functions that it calls are part of it.
    """
    reader = _Ttir()
    for line in text.splitlines():
        reader.read(line)
    return reader.access.to_json()


class _Ttir:
    """Follows addresses from a function's parameters to where they are used."""

    def __init__(self) -> None:
        self.access = Access()
        self._origin: dict[str, str] = {}
        """Value -> the parameter that it points to."""

    def read(self, line: str) -> None:
        signature, match = _SIGNATURE.match(line), _OPERATION.match(line)
        if signature is not None:
            parameters = _PARAMETER.findall(line) if signature[1] else ()
            self._origin = {f"%{name}": told or name for name, told in parameters}
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
        elif operation != "arith.select":
            values = []
        owner = next((self._origin[one] for one in values if one in self._origin), None)
        self._origin.pop(result, None)  # of another region, where the name meant something else
        if owner is not None:
            self._origin[result] = owner


def _how(operation: str, rest: str) -> str:
    if operation in _READS:
        return "read"
    return "write" if operation in _WRITES or _EXCHANGE.match(rest) else "add"


def _carried(result: str | None, rest: str, origin: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What a loop carries, within it and behind it."""
    found = _CARRIED.search(rest)
    pairs = _PAIR.findall(found[1]) if found else []
    for at, (inner, outer) in enumerate(pairs):
        if outer in origin:
            yield inner, origin[outer]
            yield f"{result}" if len(pairs) == 1 else f"{result}#{at}", origin[outer]


_BODY = re.compile(r"__global__[^;{]*\{(.*?)\n\}", re.DOTALL)
_ATOMIC = re.compile(r"\b[Aa]tomic(?!Load)\w*(?:<[^>]*>)?\((?:[(&\s]|\(\w+\s*\*\))*([A-Za-z_]\w*)")


def of_source(text: str, names: Sequence[str]) -> dict[str, Any]:
    """Of kernels in C++, by the names of their parameters.

    Only what is certain is said: that all of a kernel's lines that name an argument add to it.
    """
    uses: dict[str, set[bool]] = {}
    lines = [line for body in _BODY.findall(text) for line in body.splitlines()]
    for line in lines:
        atomic = _ATOMIC.search(line)
        for name in names:
            if re.search(rf"\b{re.escape(name)}(?:_desc)?\b", line):
                uses.setdefault(name, set()).add(atomic is not None and atomic[1] == name)
    return {"adds": sorted(name for name, kinds in uses.items() if kinds == {True}), "reads": []}
