"""Sections of `build.toml` as the tests read them."""

from __future__ import annotations

from pathlib import Path

import tomli

from kbuild.ops.model import OpSpec
from kbuild.ops.section import DslSection, read_section
from kbuild.project.config.issue import dotted
from kbuild.project.config.locate import LineIndex

FOLDER = Path(__file__).parent / "section_examples"
HEAD = """\
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.k.op]]
"""
BASE = {
    "schema": '"k(Tensor x, Tensor w, Tensor? b, int n=1, float eps=1e-6, bool f=False) -> Tensor"',
    "shapes": '{ x = ["...", "N"], w = ["N"], b = ["N"], out = "x" }',
    "dtypes": '["float16", "float32"]',
    "grid": '["cdiv(N, BLOCK)"]',
    "configs": "[{ BLOCK = 128, num_warps = 4 }, { BLOCK = 256 }]",
}


def text_of(_more: str = "", **keys: str) -> str:
    """A section with one op: the keys of `BASE`, replaced or (with None) left out."""
    lines = {**BASE, **{key.replace("__", "-"): value for key, value in keys.items()}}
    return HEAD + "".join(f"{k} = {v}\n" for k, v in lines.items() if v is not None) + _more


def read(text: str) -> DslSection:
    name, section = next(iter(tomli.loads(text)["kernel"].items()))
    return read_section(name, section)


def op_of(text: str) -> OpSpec:
    reading = read(text)
    assert reading.issues == ()
    return reading.ops[0]


def said(text: str) -> str:
    """Every issue with its line, as `kbuild check-config` words it."""
    lines = LineIndex(text)
    return "\n".join(
        f"{lines.of(issue.path)}: {'warning: ' * (issue.severity == 'warning')}"
        f"{dotted(issue.path)}: {issue.message}\n  hint: {issue.hint}"
        for issue in read(text).issues
    )


def example(name: str) -> tuple[OpSpec, ...]:
    """The ops of one of the sections in `examples/`."""
    reading = read((FOLDER / f"{name}.toml").read_text("utf-8"))
    assert reading.issues == ()
    return reading.ops
