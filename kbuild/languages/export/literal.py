"""Bytes as C string literals: about 1.9 characters a byte, where a list of numbers has 5."""

from __future__ import annotations

from collections.abc import Iterator

_WIDTH = 110
_PLAIN = {byte: chr(byte) for byte in range(0x20, 0x7F)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("?"): "\\?",  # two of them start a trigraph
    ord("\n"): "\\n",
    ord("\t"): "\\t",
}
_DIGITS = frozenset(b"01234567")


def literal(data: bytes) -> Iterator[str]:
    """Lines of adjacent string literals that stand for the bytes, and a zero behind them."""
    line = ""
    for index, byte in enumerate(data):
        line += _written(byte, data[index + 1 : index + 2])
        if len(line) >= _WIDTH or byte == ord("\n"):
            yield f'"{line}"'
            line = ""
    if line or not data:
        yield f'"{line}"'


def _written(byte: int, following: bytes) -> str:
    """A character; octal escapes are short where no digit follows."""
    plain = _PLAIN.get(byte)
    if plain is not None:
        return plain
    return f"\\{byte:03o}" if following and following[0] in _DIGITS else f"\\{byte:o}"
