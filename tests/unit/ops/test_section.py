"""What a good section means."""

from __future__ import annotations

import dataclasses

import pytest

from kbuild.ops.model import Dimension
from kbuild.ops.steps import Candidate
from tests.support.sections import example, op_of, text_of


def test_the_shortest_op():
    op = op_of(text_of())
    assert op.name == "k"
    assert (op.kernel, op.language, op.toolchain) == ("k", "triton", ("triton==3.9.0",))
    assert op.sources == ("k.py",)
    assert op.results == ("out",)
    assert op.inputs == ("x", "w", "b")
    assert op.optional == ("b",)
    assert op.sizes == (Dimension("N", "x", -1),)
    assert op.path == ("kernel", "k", "op", 0)
    (launch,) = op.launches
    assert launch.functions == ("k", "k_kernel")
    assert launch.candidates == (
        Candidate((("BLOCK", 128),), (("num_warps", 4),)),
        Candidate((("BLOCK", 256),)),
    )
    assert [str(axis) for axis in launch.grid] == ["cdiv(N, BLOCK)"]


def test_frozen_and_hashable():
    op = op_of(text_of())
    assert hash(op) == hash(op_of(text_of()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        op.kernel = "other"


def test_dtypes_of_all_tensors():
    assert op_of(text_of()).dtype_sets() == (
        dict.fromkeys(["x", "w", "b", "out"], "float16"),
        dict.fromkeys(["x", "w", "b", "out"], "float32"),
    )
    (only,) = op_of(text_of(dtypes='"bfloat16"')).dtype_sets()
    assert set(only.values()) == {"bfloat16"}


def test_dtypes_by_tensor():
    table = '{ x = ["float16", "bfloat16"], w = ["float32", "float16"], b = "w", out = "x" }'
    sets = op_of(text_of(dtypes=table)).dtype_sets()
    assert len(sets) == 4
    assert all(one["b"] == one["w"] and one["out"] == one["x"] for one in sets)
    assert {(one["x"], one["w"]) for one in sets} == {
        (x, w) for x in ("float16", "bfloat16") for w in ("float32", "float16")
    }


def test_a_tensor_that_may_be_none_does_not_say_the_results_dtype():
    schema = '"k(Tensor? b, Tensor x) -> Tensor"'
    op = op_of(text_of(schema=schema, shapes='{ x = ["N"], out = "x" }'))
    assert {rule.tensor: rule.like for rule in op.dtypes} == {"x": "", "b": "x", "out": "x"}


def test_a_matrix_is_every_combination():
    op = op_of(text_of(configs=None, matrix="{ BLOCK = [64, 128], num_warps = [4, 8] }"))
    assert [dict((*c.constants, *c.options)) for c in op.launches[0].candidates] == [
        {"BLOCK": block, "num_warps": warps} for block in (64, 128) for warps in (4, 8)
    ]


def test_a_predicate_knows_its_candidates_constants():
    configs = '[{ BLOCK = 128, when = "N % BLOCK == 0" }, { BLOCK = 1, when = "BLOCK < 2" }]'
    first, second = op_of(text_of(configs=configs)).launches[0].candidates
    assert first.when.names() == {"N"}
    assert first.when.evaluate({"N": 256}) == 1
    assert second.when is None, "it always holds"


def test_the_kernels_own_candidates():
    (launch,) = op_of(text_of(configs='"autotune"', grid='["cdiv(N, ANY)"]')).launches
    assert launch.autotune
    assert launch.candidates == ()


def test_constants():
    constants = (
        '{ ONE = 1, FLAG = true, TEXT = { string = "gelu" }, EVEN = "N % BLOCK == 0", '
        'HAS = "has(b)", f = "f", N = { value = "N", choices = [64, 128] }, SUM = "1 + 1" }'
    )
    (launch,) = op_of(text_of(constants=constants)).launches
    found = {constant.name: constant for constant in launch.constants}
    fixed = {"ONE": 1, "FLAG": True, "TEXT": "gelu", "SUM": 2}
    depends = dict.fromkeys(["EVEN", "HAS", "f", "N"])
    assert {name: one.value for name, one in found.items()} == fixed | depends
    assert found["EVEN"].choices == found["HAS"].choices == found["f"].choices == (False, True)
    assert found["N"].choices == (64, 128)


def test_sources_of_arguments():
    args = '{ a = "x", b = "N * 2", c = "eps", d = 0.5, e = 3, f_ = "f", g = true, h = "has(b)" }'
    (launch,) = op_of(text_of(args=args)).launches
    kinds = {name: (source.kind, str(source)) for name, source in launch.args}
    assert kinds == {
        "a": ("tensor", "x"),
        "b": ("int", "N * 2"),
        "c": ("float", "eps"),
        "d": ("float", "0.5"),
        "e": ("int", "3"),
        "f_": ("bool", "f"),
        "g": ("bool", "True"),
        "h": ("bool", "has(b)"),
    }


def test_a_tuple():
    (launch,) = op_of(text_of(args='{ t = ["N * 2", "x", "eps", 0.5, true] }')).launches
    ((_, source),) = launch.args
    assert source.kind == "tuple"
    assert [item.kind for item in source.items] == ["int", "tensor", "float", "float", "bool"]
    assert str(source) == "(N * 2, x, eps, 0.5, True,)"


def test_a_descriptor():
    args = '{ d = { tensor = "w", block = ["BLOCK // 2"], padding = "nan" } }'
    (launch,) = op_of(text_of(args=args)).launches
    ((_, source),) = launch.args
    assert (source.kind, source.name, source.padding) == ("descriptor", "w", "nan")
    assert str(source) == "descriptor(w, [BLOCK // 2], nan)"
    assert [source.block_shape(c.constants) for c in launch.candidates] == [(64,), (128,)]


def test_the_layout_of_a_descriptor():
    layout = "{ transposed = true, swizzle_byte_width = 64 }"
    args = f'{{ d = {{ tensor = "w", block = [64], layout = {layout} }} }}'
    (launch,) = op_of(text_of(args=args)).launches
    ((_, source),) = launch.args
    assert source.layout == (("swizzle_byte_width", 64), ("transposed", True))


def test_dtypes_as_constants():
    constants = '{ T = { dtype = "w" }, ACC = { dtype = "float32" } }'
    (launch,) = op_of(text_of(constants=constants)).launches
    assert [(c.name, c.dtype_of, c.dtype) for c in launch.constants] == [
        ("T", "w", ""),
        ("ACC", "", "float32"),
    ]


def test_what_candidates_must_meet():
    configs = "[{ BLOCK = 128, num_warps = 4 }, { BLOCK = 256, num_warps = 8 }]"
    op = op_of(text_of(configs=configs, keep='["BLOCK * num_warps < 2048"]'))
    assert [dict(c.constants) for c in op.launches[0].candidates] == [{"BLOCK": 128}]


def test_what_depends_on_the_call_goes_into_the_predicate():
    configs = '[{ BLOCK = 128, when = "n > 1" }, { BLOCK = 256 }]'
    (launch,) = op_of(text_of(configs=configs, keep='["BLOCK < 200 or N > BLOCK"]')).launches
    first, second = launch.candidates
    assert first.when.names() == {"n"}
    assert [second.when.evaluate({"N": value}) for value in (256, 257)] == [0, 1]
    (launch,) = op_of(text_of(configs=configs, keep='["N % BLOCK == 0"]')).launches
    when = launch.candidates[0].when
    calls = [{"n": n, "N": size} for n in (1, 2) for size in (127, 128)]
    assert [when.evaluate(call) for call in calls] == [0, 0, 0, 1]


LAUNCHES = """
[[kernel.k.op.launch]]
function = "with_b"
when = "hb and N > 1"
args = { d = { tensor = "b", block = [16] }, s = "size(b, 0)" }
grid = ["numel(b)"]
[[kernel.k.op.launch]]
function = "without_b"
when = "not (hb and N > 1)"
grid = ["numel(b) if hb else 1"]
"""


def test_launches_with_conditions():
    """Where `when` says that a tensor is there, it may be asked about; names of `let` count."""
    op = op_of(text_of(LAUNCHES, let='{ hb = "has(b)" }', grid=None, configs=None))
    first, second = op.launches
    assert str(first.when) == "hb and N > 1"
    assert [str(source) for _, source in first.args] == ["descriptor(b, [16], zero)", "size(b, 0)"]
    assert second.when.evaluate({"hb": 1, "N": 1}) == 1


def test_questions_behind_a_guard():
    op = op_of(
        text_of(
            let='{ m = "numel(b) if has(b) else 1", l = "0 if not has(b) else dim(b)" }',
            require='["not has(b) or stride(b, -1) == 1", "size(b, 0) > 1 if has(b) else N > 1"]',
            shapes='{ x = ["...", "N"], w = ["N"], b = ["N", "size(b, 0) * 2"], out = "x" }',
        )
    )
    assert len(op.let) == 2


def test_contiguous():
    assert op_of(text_of(contiguous="true")).contiguous == ("x", "w", "b")
    assert op_of(text_of(contiguous='["w"]')).contiguous == ("w",)
    assert op_of(text_of()).contiguous == ()


def test_dimensions_from_both_ends():
    shapes = '{ x = ["B", "...", "M", "N"], w = ["N", 4, "n * 2"], out = "x" }'
    op = op_of(text_of(shapes=shapes))
    assert {size.name: size.axis for size in op.sizes} == {"B": 0, "M": -2, "N": -1}
    assert op.shape("out") == op.shape("x")
    assert op.shape("w").rank == 3
    assert op.shape("x").rank is None


def test_several_results():
    op = op_of(
        text_of(
            schema='"k(Tensor x) -> (Tensor, Tensor mean)"',
            shapes='{ x = ["M", "N"], out0 = "x", mean = ["M"] }',
            dtypes='{ x = ["float16"], out0 = "x", mean = "float32" }',
        )
    )
    assert op.results == ("out0", "mean")


def test_an_op_that_only_writes():
    op = op_of(text_of(schema='"k(Tensor(a!) x) -> ()"', shapes='{ x = ["N"] }'))
    assert op.results == ()
    assert op.schema.mutated == ("x",)


def test_examples():
    (add,) = example("add")
    assert len(add.dtype_sets()) == 3
    rmsnorm, inplace = example("rmsnorm")
    assert [str(c.when) for c in rmsnorm.launches[0].candidates] == [
        "N <= 1024",
        "N <= 4096",
        "None",
    ]
    assert inplace.fallback == "jit"
    gemm, splitk = example("gemm")
    assert len(gemm.launches[0].candidates) == 24
    assert [launch.functions for launch in splitk.launches] == [
        ("splitk_kernel",),
        ("reduce_kernel",),
    ]
    assert splitk.launches[0].candidates[1].archs == ("9.0",)
    assert splitk.launches[1].path == ("kernel", "gemm", "op", 1, "launch", 1)
