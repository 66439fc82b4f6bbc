"""Kernel functions that sources cannot have, found from their text."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError

BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.demo]
backend = "cuda"
language = "{language}"
toolchain = "{toolchain}"
src = ["k.py", "other.py"]

[[kernel.demo.op]]
schema = "scale(Tensor x, float factor) -> Tensor out"
{function}
shapes = {{ x = ["..."], out = "x" }}
dtypes = ["float32"]
contiguous = true
{grid}
"""
PINS = {
    "triton": "triton==3.9.0",
    "cute": "nvidia-cutlass-dsl==4.8.1",
    "tilelang": "tilelang==0.1.15",
}
FUNCTION = "def scale(x, factor, out): pass\n"


def problems(folder: Path, source: str, other: str = "", function: str = "", dsl: str = "triton"):
    """Message and hint of each problem of a project with this kernel."""
    package = folder / "torch-ext" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__all__ = []\n")
    named = f'function = "{function}"' if function else ""
    grid = "" if dsl == "tilelang" else 'grid = ["1"]'
    text = BUILD.format(language=dsl, toolchain=PINS[dsl], function=named, grid=grid)
    (folder / "build.toml").write_text(text)
    (folder / "k.py").write_text(textwrap.dedent(source))
    (folder / "other.py").write_text(textwrap.dedent(other))
    try:
        open_project(folder)
    except ConfigError as error:
        return [(problem.message, problem.hint) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (f"@triton.jit\n{FUNCTION}", ""),
        ("scale = make()\n", ""),
        ("from other import scale\n", f"@triton.jit\n{FUNCTION}"),
        ("from other import *\n", ""),
        ("globals()['sca' + 'le'] = make()\n", ""),
    ],
)
def test_what_may_be_there_is_no_problem(tmp_path, source, other):
    assert problems(tmp_path, source, other) == []


@pytest.mark.parametrize("dsl", ["triton", "cute", "tilelang"])
def test_a_function_that_no_source_has(tmp_path, dsl):
    source = f"@{dsl}.jit\n{FUNCTION}".replace("scale", "scale_rows")
    ((message, hint),) = problems(tmp_path, source, function="scale_row", dsl=dsl)
    assert message == "there is no `scale_row` in `k.py`"
    assert "did you mean `scale_rows`?" in hint
