"""How `fuzz.py` changes an input: bytes, text, documents (JSON and TOML) and ELF headers.

Each mutation takes a seed input, the others of its target, and a generator of random numbers; the
same numbers give the same bytes. One that knows the form reaches further than one that does not,
so most targets take several.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import tomli

Mutation = Callable[[bytes, Sequence[bytes], Random], bytes]

_EDGES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000)
_WIDE_EDGES = (*_EDGES, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_MOST_BYTES = 1 << 18
_NESTED = "\ue000"
"""Stands in a document for a value that is too deep for `json.dumps`."""
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_WORDS = (
    "",
    " ",
    "\n",
    "\0",
    "..",
    "../../etc/passwd",
    "/",
    "é",
    "\u202e",
    "\ufeff",
    "%s",
    "{}",
    "${x}",
    "__proto__",
    "None",
    "-1",
    "1e999",
    "1000000",
    "3000000000",
    "2.5",
    "9" * 18,
    "9" * 25,
    "9" * 5000,
    "0x" + "f" * 5000,
    "a" * 5000,
)
_PARTS = (
    "(" * 1000,
    "[" * 1000,
    "{" * 1000,
    "-" * 3000,
    "not " * 1000,
    "a." * 2000,
    "x+" * 2000,
    "if x:\n " * 50,
    # What a parser takes and a walk over its tree may not.
    "-" * 400,
    "not " * 300,
    "a." * 400,
    "a." * 150,
    "x+" * 400,
    "f(x)[0]." * 100,
    "lambda: " * 150,
    "x if y else " * 150,
    '"' * 3,
    "'",
    "\\",
    "#",
    "/*",
    "=",
    "\r",
    "\x00",
    "\ud800",
)


def mutate_bytes(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Flip, overwrite, cut, repeat and splice, without knowing what the bytes are."""
    data = bytearray(seed)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        random.choice(_BYTE_EDITS)(data, others, random)
    return bytes(data[:_MOST_BYTES])


def _flip(data: bytearray, _others: Sequence[bytes], random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(data: bytearray, _others: Sequence[bytes], random: Random) -> None:
    """An integer of some width by an edge, most often where integers are: aligned, at the start."""
    width = random.choice((1, 2, 4, 8))
    reach = min(len(data), random.choice((64, 512, 1 << 30))) - width
    if reach < 0:
        return
    at = random.randrange(reach + 1)
    at -= at % width if random.random() < 0.8 else 0
    value = random.choice((*_WIDE_EDGES, len(data), len(data) + 1, random.getrandbits(64)))
    data[at : at + width] = (value % (1 << 8 * width)).to_bytes(
        width, random.choice(("little", "little", "big"))
    )


def _cut(data: bytearray, _others: Sequence[bytes], random: Random) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : random.choice((len(data), at + 1, at + random.randrange(1, 64)))]


def _repeat(data: bytearray, _others: Sequence[bytes], random: Random) -> None:
    at = random.randrange(len(data) + 1)
    part = data[at : at + random.choice((1, 8, 64, 512))]
    data[at:at] = part * random.choice((1, 2, 100))


def _splice(data: bytearray, others: Sequence[bytes], random: Random) -> None:
    other = random.choice(others) if others else b""
    begin = random.randrange(len(other) + 1)
    at = random.randrange(len(data) + 1)
    data[at : at + random.choice((0, 16, len(data)))] = other[begin : begin + 256]


def _insert(data: bytearray, _others: Sequence[bytes], random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice((b"\0", b"\xff" * 8, b"\xf0\x9f", random.randbytes(4)))


_BYTE_EDITS = (_flip, _overwrite, _overwrite, _cut, _repeat, _splice, _insert)


def mutate_text(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Take out, repeat, swap and replace tokens, put one line into another, nest deeply."""
    tokens = _TOKEN.findall(seed.decode("utf-8", "replace"))
    pool = _TOKEN.findall(random.choice(others or [seed]).decode("utf-8", "replace")) or [""]
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        at = random.randrange(len(tokens) + 1)
        kind = random.randrange(8)
        if kind == 0:
            del tokens[at : at + random.choice((1, 2, 10))]
        elif kind == 1:
            tokens[at:at] = tokens[at : at + random.choice((1, 5, 20))] * random.choice((1, 3, 200))
        elif kind == 2 and len(tokens) > 1:
            other = random.randrange(len(tokens))
            at = min(at, len(tokens) - 1)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens[at : at + 1] = [random.choice(_WORDS)]
        elif kind == 4:
            tokens[at:at] = [random.choice(_PARTS)]
        elif kind == 5:
            begin = random.randrange(len(pool))
            tokens[at : at + random.choice((0, 1, 5))] = pool[begin : begin + random.randrange(12)]
        elif kind == 6:
            opening, closing = random.choice(("()", "[]", "{}", "<>"))
            depth = random.choice((1, 30, 300, 3000))
            tokens[at : at + 1] = [opening * depth, *tokens[at : at + 1], closing * depth]
        else:
            tokens[at : at + 1] = [random.choice(pool)]
    text = "".join(tokens)[:_MOST_BYTES]
    return text.encode("utf-8", "surrogatepass")


def mutate_json(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Change values, types and keys of a document; sometimes its bytes after that."""
    try:
        document = json.loads(seed)
    except ValueError:
        return mutate_text(seed, others, random)
    text = _dumped(_edited(document, random))
    return mutate_bytes(text, others, random) if random.random() < 0.1 else text


def mutate_json_lines(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Change one line of several documents."""
    lines = seed.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = mutate_json(lines[at], others, random).replace(b"\n", b" ")
    return b"\n".join(lines)


def mutate_toml(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """As `mutate_json`, for TOML; tables are written inline."""
    document = _edited(tomli.loads(seed.decode()), random)
    if not isinstance(document, dict):
        return mutate_text(seed, others, random)
    lines = [f"{json.dumps(str(key))} = {_toml(value)}" for key, value in document.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        parts = (f"{json.dumps(str(key))} = {_toml(part)}" for key, part in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if value == _NESTED:
        return "[" * 500 + "]" * 500
    if isinstance(value, float):
        return repr(value).replace("1e+", "1e")
    return "''" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _dumped(document: Any) -> bytes:
    text = json.dumps(document)
    while (at := text.find(json.dumps(_NESTED))) >= 0:
        depth = (50, 500, 2000, 100_000)[at % 4]
        deep = '{"a":' * depth + "1" + "}" * depth if at % 3 else "[" * depth + "]" * depth
        text = text[:at] + deep + text[at + len(json.dumps(_NESTED)) :]
    return text.encode()


def _edited(document: Any, random: Random) -> Any:
    holder = [json.loads(json.dumps(document, default=str))]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = list(_places(holder))
        # Near the top as often as at the many leaves.
        upper = places[: max(1, len(places) // 8)]
        parent, key = random.choice(random.choice((places, upper)))
        kind = random.randrange(6)
        if kind == 0 and parent is not holder:
            del parent[key]
        elif kind == 1 and isinstance(parent, dict):
            parent[random.choice(_WORDS)] = parent.pop(key)
        elif kind == 2:
            parent[key] = _value(parent[key], random)
        elif kind == 3 and len(places) > 1:
            other, name = random.choice(places)
            parent[key] = json.loads(json.dumps(other[name]))
        elif kind == 4:
            parent[key] = random.choice(([parent[key]], {"a": parent[key]}, [parent[key]] * 3))
        else:
            parent[key] = _value(parent[key], random)
    return holder[0]


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key in it, breadth first."""
    waiting = [holder]
    for container in waiting:
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            yield container, key
            if isinstance(container[key], (dict, list)):
                waiting.append(container[key])


def _value(value: Any, random: Random) -> Any:
    """Another value, as often of the same type as of another."""
    if isinstance(value, str) and random.random() < 0.5:
        longer = (value * 50)[:_MOST_BYTES]
        words = (value + "x", value[:-1], value.upper(), longer, f"../{value}", f"{value}\n")
        return random.choice(words)
    if isinstance(value, int) and random.random() < 0.5:
        return random.choice((-value, value + 1, value * 1000, 1 << 63, -(1 << 63), 10**30))
    return random.choice(
        (
            None,
            True,
            False,
            0,
            -1,
            1.5,
            float("nan"),
            float("inf"),
            -float("inf"),
            1e308,
            10**400,
            [],
            {},
            [None],
            {"": None},
            "\ud800",
            "\udfff\0",
            _NESTED,
            random.choice(_WORDS),
            random.getrandbits(64),
        )
    )


_WIDE_ELF, _WIDE_SECTION, _WIDE_SEGMENT = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IIQQQQQQ"


def mutate_elf(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Change fields of a 64-bit file's header, section headers, segment headers and tables."""
    data = bytearray(seed)
    try:
        head = struct.unpack_from(_WIDE_ELF, data)
        for _ in range(random.choice((1, 1, 2, 3))):
            _edit_elf(data, head, random)
    except (struct.error, ValueError, IndexError, OverflowError):
        return mutate_bytes(seed, others, random)
    return bytes(data)


def _edit_elf(data: bytearray, head: tuple[Any, ...], random: Random) -> None:
    segments, sections, segment_count, section_count = head[5], head[6], head[10], head[12]
    kind = random.randrange(5)
    if kind == 0:
        _edit_fields(data, 0, _WIDE_ELF, random, first=1)
    elif kind == 1 and segment_count:
        at = segments + 56 * random.randrange(segment_count)
        _edit_fields(data, at, _WIDE_SEGMENT, random)
    else:
        at = sections + 64 * random.randrange(max(1, section_count))
        if kind in (2, 3):
            _edit_fields(data, at, _WIDE_SECTION, random)
            return
        # An integer in the section's own content: a dynamic tag, a version, a symbol, a note.
        offset, size = struct.unpack_from("<QQ", data, at + 24)
        width = random.choice((2, 4, 8))
        inside = offset + random.randrange(max(1, size // width)) * width
        if inside + width <= len(data):
            value = random.choice((*_WIDE_EDGES, random.getrandbits(64), len(data)))
            data[inside : inside + width] = (value % (1 << 8 * width)).to_bytes(width, "little")


def _edit_fields(data: bytearray, at: int, layout: str, random: Random, first: int = 0) -> None:
    fields = list(struct.unpack_from(layout, data, at))
    widths = [{"H": 2, "I": 4, "Q": 8}.get(code, 0) for code in layout.replace("16s", "s")[1:]]
    index = random.randrange(first, len(fields))
    near = (fields[index] + 1, fields[index] - 1, fields[index] * 2, len(data))
    value = random.choice((*_WIDE_EDGES, *near, random.getrandbits(64), *fields[first:]))
    fields[index] = value % (1 << 8 * widths[index])
    struct.pack_into(layout, data, at, *fields)
