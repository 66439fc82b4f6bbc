"""Arguments of exported CuTe kernels, as a command line says them."""

from __future__ import annotations

import pytest

from kbuild.dsl.languages.cute.export import describe_arguments, read_arguments
from kbuild.system.errors import UsageError


def size(name, divisor=1, bits=32):
    return {"size": name, "bits": bits, "divisor": divisor}


def test_tensors():
    arguments, constants = read_arguments(
        ["x=float16[M, N%8]@16", "y=float32[M, 64; S, 1]", "z=int8[ N ]"]
    )
    assert constants == {}
    assert arguments == [
        {"name": "x", "kind": "tensor", "dtype": "float16", "align": 16,
         "shape": [size("M"), size("N", 8)], "strides": None},
        {"name": "y", "kind": "tensor", "dtype": "float32", "align": 0,
         "shape": [size("M"), 64], "strides": [size("S", bits=64), 1]},
        {"name": "z", "kind": "tensor", "dtype": "int8", "align": 0,
         "shape": [size("N")], "strides": None},
    ]  # fmt: skip


def test_numbers_tuples_and_constants():
    arguments, constants = read_arguments(
        ["n=i32", "k=i64", "a=f32", "b=bool", "shape=(i32, f32)", "block=128", "eps=1e-6",
         "causal=true", "wide=float32", "mode='max'", "low=-3"]
    )  # fmt: skip
    assert [one["kind"] for one in arguments] == ["int", "int", "float", "bool", "tuple"]
    assert [one.get("bits") for one in arguments[:2]] == [32, 64]
    assert [one["name"] for one in arguments[4]["items"]] == ["shape.0", "shape.1"]
    assert constants == {
        "block": 128, "eps": 1e-6, "causal": True, "wide": {"dtype": "float32"}, "mode": "max",
        "low": -3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "is not an argument"),
        ("=i32", "is not an argument"),
        ("x=", "is not an argument"),
        ("x=half[M]", "`half` is not a dtype"),
        ("x=float16[M,]", "lacks a size"),
        ("x=float16[]", "lacks a size"),
        ("x=float16[M, %8]", "`%8` is not a size"),
        ("x=float16[M+1]", "`M+1` is not a size"),
        ("x=float16[M, N; 1]", "has 2 dimensions and 1 strides"),
        ("x=(i32, 5)", "is not a tuple of arguments"),
        ("x=()", "is not a tuple of arguments"),
        ("x=float99", "is neither an argument nor a constant"),
    ],
)
def test_what_is_wrong(text, words):
    with pytest.raises(UsageError, match="--arg") as raised:
        read_arguments([text])
    assert words in str(raised.value)


def test_a_name_twice():
    with pytest.raises(UsageError, match="`n` is given twice"):
        read_arguments(["n=i32", "n=1"])


def test_facts_say_what_a_header_does_not():
    arguments, _ = read_arguments(["x=float64[4]", "shape=(i32, i32)"])
    facts = describe_arguments(arguments)
    assert [one["name"] for one in facts] == ["x", "shape.0", "shape.1"]
    assert facts[0]["align"] == 8
