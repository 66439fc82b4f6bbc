"""Refresh ATen's names in `kbuild/plugins/advice/` and its schemas in `kbuild/ops/`.

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

ROOT = Path(__file__).parent.parent
NAMES = ROOT / "kbuild/plugins/advice/aten_operators.txt"
SCHEMAS = ROOT / "kbuild/ops/aten_schemas.txt"
SCHEMA = re.compile(r'schema_str = "(([\w.]+?)(?:\.\w+)?\((.*)\) -> (.*))";')
ANNOTATION = re.compile(r"\([a-z][^)]*\)")
# What torch/csrc/stable/stableivalue_conversions.h converts, single, optional or in lists.
CONVERTED = (
    *("Tensor", "bool", "int", "float", "SymInt", "str"),
    *("ScalarType", "Layout", "Device", "MemoryFormat"),
)
INTERNAL = re.compile(
    r"_?(foreach|nested|sparse|fused|test|cudnn|miopen|mkldnn|mps|quantize|fake_quantize|thnn|fbgemm"
    r"|to_sparse|validate|upsample|fft|cslt|sobol|philox|weight_int|wrapped|autocast|make_|convert_"
    r"|dyn_quant|transformer|embedding_bag|amp|assert|functional_assert|linalg_check|jagged|padded"
    r"|propagate|choose_qparams|cast_[A-Z]|coalesce|indices|values|crow|col_|row_|ccol|int_repr"
    r"|qint|dequantize|lstm|gru|rnn|qua|q_|sym_|is_|use_|backward|version|has_|print|foobar|ctc"
    r"|unpack|new_zeros_with|convolution_mode|resize_output|add_batch|remove_batch|lazy|slow_conv"
    r"|flash_attention|scaled_dot_product_attention_math|cholesky$|qr$)"
)
"""Families that no op needs between its launches (other backends, layouts, tests), and operators
whose schema is not the same from Torch 2.11 to 2.15."""
NAMES_HEADER = """\
# Operators with an overload whose arguments torch/csrc/stable/stableivalue_conversions.h can
# convert, so that torch_call_dispatcher can call them; from the headers of Torch {version}.
# Made by scripts/refresh_aten_operators.py.
"""
SCHEMAS_HEADER = """\
# Operators of aten that return tensors, without variants for `out`; from the headers of Torch
# {version}. Made by scripts/refresh_aten_operators.py.
"""


def operators(include: Path) -> Iterator[tuple[str, str, list[str], str]]:
    """Schema, name without overload, types of the arguments, and results of each operator."""
    for header in sorted((include / "ATen" / "ops").glob("*_ops.h")):
        for schema, name, arguments, results in SCHEMA.findall(header.read_text("utf-8")):
            types = [part.split()[0] for part in split(ANNOTATION.sub("", arguments))]
            # A list with a size cannot be empty in a schema that is read from text.
            text = re.sub(r"\[\d\]( \w+=\[\])", r"[]\1", schema.replace('\\"', '"'))
            yield text, name, [kind for kind in types if kind != "*"], results


def names_text(include: Path, release: str) -> str:
    """Names of operators that can be called through the dispatcher's stable entry."""
    names = {name for _, name, types, _ in operators(include) if all(map(converted, types))}
    words = " ".join(sorted(names))
    filled = textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)
    return NAMES_HEADER.format(version=release) + filled + "\n"


def schemas_text(include: Path, release: str) -> str:
    """Schemas that a section may call; those with a `Scalar` have others in their place."""
    lines = sorted(
        schema
        for schema, name, types, results in operators(include)
        if not INTERNAL.match(name)
        and all(converted(kind) or kind.rstrip("?") == "Scalar" for kind in types)
        and not re.search(r"\(\w!\) \w*out\w*[,)]|\*, Tensor\(\w!\)", schema)
        and not (name.endswith("_copy") and name != "_to_copy")
        and not (name.endswith("_backward") and name.startswith("_"))
        and all(
            kind.startswith("Tensor") or not kind
            for kind in split(ANNOTATION.sub("", results.strip("()")))
        )
    )
    return SCHEMAS_HEADER.format(version=release) + "\n".join(lines) + "\n"


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
    include, release = Path(spec.origin).parent / "include", version("torch").partition("+")[0]
    texts = {NAMES: names_text(include, release), SCHEMAS: schemas_text(include, release)}
    stale = False
    for target, text in texts.items():
        if "--check" in sys.argv[1:]:
            same = target.read_text("utf-8") == text
            print(f"{target.name} is {'up to date' if same else 'stale'}")
            stale = stale or not same
        else:
            target.write_text(text, "utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
