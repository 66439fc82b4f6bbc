"""Refresh `kbuild/advice/aten_operators.txt` from the headers of an installed Torch.

Usage: `python scripts/refresh_aten_operators.py [--check]`, with the Python that has the Torch.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

TARGET = Path(__file__).parent.parent / "kbuild/advice/aten_operators.txt"
SCHEMA = re.compile(r'schema_str = "([\w.]+?)(?:\.\w+)?\((.*)\) -> ')
ANNOTATION = re.compile(r"\([a-z][^)]*\)")
# What torch/csrc/stable/stableivalue_conversions.h converts, single, optional or in lists.
CONVERTED = (
    *("Tensor", "bool", "int", "float", "SymInt", "str"),
    *("ScalarType", "Layout", "Device", "MemoryFormat"),
)
HEADER = """\
# Operators with an overload whose arguments torch/csrc/stable/stableivalue_conversions.h can
# convert, so that torch_call_dispatcher can call them; from the headers of Torch {version}.
# Made by scripts/refresh_aten_operators.py.
"""


def callable_names(include: Path) -> Iterator[str]:
    """Names of operators that can be called through the dispatcher's stable entry."""
    for header in sorted((include / "ATen" / "ops").glob("*_ops.h")):
        for name, arguments in SCHEMA.findall(header.read_text("utf-8")):
            types = [part.split()[0] for part in split(ANNOTATION.sub("", arguments))]
            if all(converted(kind) for kind in types if kind != "*"):
                yield name


def split(arguments: str) -> list[str]:
    """The arguments of a schema; commas inside brackets do not separate."""
    return [part for part in re.split(r",\s*(?![^\[]*\])", arguments) if part]


def converted(kind: str) -> bool:
    """Whether a value of a schema type has a conversion; an absent generator is just None."""
    return kind == "Generator?" or re.sub(r"\[\d*\]|\?", "", kind) in CONVERTED


def main() -> int:
    """Write the file; with `--check`, say whether it is stale."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        print("this Python has no Torch")
        return 1
    names = sorted({*callable_names(Path(spec.origin).parent / "include")})
    words = textwrap.fill(" ".join(names), 100, break_long_words=False, break_on_hyphens=False)
    text = HEADER.format(version=version("torch").partition("+")[0]) + words + "\n"
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text("utf-8") == text
        print(f"{TARGET.name} is {'up to date' if same else 'stale'}")
        return 0 if same else 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
