"""Whatever a section holds, issues are all that can come out."""

from __future__ import annotations

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.ops.fake_kernels import fake_source
from kbuild.ops.section import DslSection, read_section
from tests.support.sections import FOLDER, read, text_of

WORDS = st.sampled_from(
    [
        *("x", "w", "b", "out", "N", "n", "eps", "f", "BLOCK", "...", "", "_N", "float16", "é"),
        *("N * 2", "numel(x)", "size(x, 9)", "has(b)", "1 // 0", "N > 1", "(", "size(out, 0)"),
        *("tensor", "block", "padding", "nan", "dtype", "string", "address(x)", "numel(b)"),
        *("autotune", "jit", "when", "choices", "value", "k(Tensor x) -> Tensor", "num_warps"),
        *("k(Tensor[2] x, Tensor?[] b) -> Tensor", "x[0]", "b[1]", "has(b[1])", "None", "none"),
        *("k(Tensor? x, int[] n) -> (Tensor(a!), int)", "\x00", "sm_count()", "triton==1"),
    ]
)
VALUES = st.recursive(
    WORDS | st.integers(-3, 3) | st.booleans() | st.floats() | st.integers(2**63, 2**65),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
EXAMPLES = [tomli.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.toml"))]
KEYS = (
    *("schema", "function", "shapes", "dtypes", "let", "require", "contiguous", "temporaries"),
    *("key", "fallback", "launch", "args", "constants", "configs", "matrix", "grid"),
    *("divisible", "ones", "int64", "keep", "other"),
)
TABLES = st.dictionaries(WORDS, VALUES, max_size=3)


@pytest.mark.full
@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EXAMPLES), st.integers(0, 1), VALUES | TABLES | st.lists(TABLES | VALUES))
def test_ops(key, example, index, value):
    ((name, section),) = example["kernel"].items()
    ops = [dict(op) for op in section["op"]]
    ops[index % len(ops)][key] = value
    check(read_section(name, {**section, "op": ops}))


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["language", "toolchain", "src", "op"]), VALUES))
def test_sections(section):
    check(read_section("k", section))


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["x", "w", "b", "out"]), st.lists(WORDS, max_size=4) | WORDS)
)
def test_shapes(shapes):
    ((name, section),) = tomli.loads(text_of())["kernel"].items()
    check(read_section(name, {**section, "op": [{**section["op"][0], "shapes": shapes}]}))


def check(reading):
    assert isinstance(reading, DslSection)
    assert all(issue.message for issue in reading.issues)
    for op in reading.ops:
        compile(fake_source(op), "fake", "exec")
        assert op.dtype_sets()


def test_the_examples_are_fine():
    assert EXAMPLES
    assert all(not read(path.read_text("utf-8")).issues for path in FOLDER.glob("*.toml"))
