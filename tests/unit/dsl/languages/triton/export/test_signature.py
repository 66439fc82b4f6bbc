"""Signatures, grids and targets as they are written on the command line."""

from __future__ import annotations

import pytest

from kbuild.dsl.languages.triton.export.c_source import read_grid
from kbuild.dsl.languages.triton.export.signature import ExportArgument, read_signature, read_target
from kbuild.system.errors import UsageError
from tests.support.exported_functions import FAST, parameters

NAMES = "x, n, alpha, BLOCK!"


def refused(call, *arguments):
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    return str(caught.value)


def test_what_the_tools_of_triton_take():
    found = read_signature(FAST, "add", parameters("x_ptr, y_ptr, out_ptr, n, BLOCK!"))
    assert found.arguments == (
        *(ExportArgument(name, "*fp32", 16) for name in ("x_ptr", "y_ptr", "out_ptr")),
        ExportArgument("n", "i32"),
    )
    assert found.constants == (("BLOCK", 1024),)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1024", 1024), ("-3", -3), ("0x10", 16), ("1.5", 1.5), ("1e-5", 1e-5)),
        *(("True", True), ("False", False), ("None", None), ('"a, b"', "a, b"), ("'it'", "it")),
    ],
)
def test_constants(text, value):
    (found,) = read_signature(f"{text}", "f", parameters("A!")).constants
    assert found == ("A", value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["*bf16:16, i64:1, fp32, 1", " *bf16 : 16 ,i64:1,fp32,1 "])
def test_hints(text):
    found = read_signature(text, "f", parameters(NAMES))
    assert [argument.hint for argument in found.arguments] == [16, 1, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*fp32, i32", "has 2 entries, `f` has 4 parameters: `x`, `n`, `alpha`, `BLOCK`"),
        ("*fp23, i32, fp32, 1", "argument 1 (`x`): `*fp23` is not a type\n  hint: did you mean"),
        ("*fp32, int, fp32, 1", "argument 2 (`n`): `int` is not a type"),
        ("*fp32, i32, *fp, 1", "`*fp` is not a type\n  hint: did you mean `fp"),
        ("*fp32, fp8e5, fp32, 1", "argument 2 (`n`): `fp8e5` is not a type"),
        ("*fp32:8, i32, fp32, 1", "argument 1 (`x`): `8` is not a hint\n  hint: `:16` divisible"),
        ("*fp32:, i32, fp32, 1", "argument 1 (`x`): `` is not a hint"),
        ("*fp32:1, i32, fp32, 1", "argument 1 (`x`): a pointer cannot be 1"),
        ("*fp32, i32, fp32:16, 1", "argument 3 (`alpha`): a float takes no hint"),
        ("*fp32, i32, fp32, i32", "argument 4 (`BLOCK`) is a constant of the kernel"),
        ("*fp32, (i32, i32), fp32, 1", "argument 2 (`n`): `(i32, i32)` is neither a type nor"),
        ("*fp32, (1, 2), fp32, 1", "C has no tuples"),
        ("tensordesc<fp16[1, 2]>, i32, fp32, 1", "tensor descriptors are made by ops"),
        ("*fp32, , fp32, 1", "argument 2 (`n`): `` is neither a type nor a constant"),
        ("*fp32, 1e999, fp32, 1", "argument 2 (`n`): `1e999` is neither"),
    ],
)
def test_what_is_no_signature(text, words):
    assert words in refused(read_signature, text, "f", parameters(NAMES))


def grid(text):
    read = read_signature("*fp32, i32, fp32, 1024", "f", parameters(NAMES))
    return [axis.evaluate({"n": 5000}) for axis in read_grid(text, read)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cdiv(n, BLOCK), 1, 1", [5, 1, 1]),
        ("(n + 1023) / 1024, 1, 1", [5, 1, 1]),
        ("(n + BLOCK - 1) // BLOCK", [5]),
        ("n/BLOCK/2,2", [2, 2]),
        ("max(min(n, 7), BLOCK if n > 1 else 1)", [1024]),
    ],
)
def test_grids(text, values):
    assert grid(text) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has 1 parts, and a grid has one to three"),
        ("1,1,1,1", "has 4 parts"),
        ("1,,1", "has 3 parts"),
        ("BLOK", "`BLOK` is not an integer argument (column 1)\n  hint: did you mean `BLOCK`?"),
        ("alpha", "`alpha` is not an integer argument"),
        ("x", "`x` is not an integer argument"),
        ("numel(x)", "`numel(x)` asks about a tensor or device"),
        ("n > 1 ? n : 1", "`?` has no meaning in an expression (column 7)\n  hint: write `a if"),
        ("(n + 1", "cannot be read"),
    ],
)
def test_what_is_no_grid(text, words):
    assert words in refused(grid, text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("cuda:80:32", "sm_80"),
        ("cuda:90:32", "sm_90a"),
        ("cuda:90a", "sm_90a"),
        ("cuda:120:32", "sm_120a"),
        ("cuda:89", "sm_89"),
        ("hip:gfx942:64", "gfx942"),
        ("hip:gfx1100:32", "gfx1100"),
        ("sm_86", "sm_86"),
        ("compute_80", "compute_80"),
        ("gfx90a", "gfx90a"),
    ],
)
def test_targets(text, target):
    assert str(read_target(text)) == target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cuda:9", "`cuda:9` is not a target\n  hint: e.g. `cuda:90:32`"),
        ("cuda:90:64", "warps of that arch have 32 threads, not 64"),
        ("hip:gfx942:32", "warps of that arch have 64 threads, not 32"),
        ("hip:gfxx", "is not a target"),
        ("", "is not a target"),
        ("xpu:pvc", "is not a target"),
    ],
)
def test_what_is_no_target(text, words):
    assert words in refused(read_target, text)
