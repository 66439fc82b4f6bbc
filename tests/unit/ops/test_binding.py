"""A launch and the kernel function's own signature."""

from __future__ import annotations

import dataclasses

import pytest

from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.candidates import with_candidates
from kbuild.ops.dialects import DIALECTS
from kbuild.ops.steps import Candidate
from kbuild.project.config.issue import IssueCollector, dotted
from tests.support.sections import example, op_of, text_of


def signature(text):
    """`"x_ptr, N, BLOCK!"`: a `!` marks a constant."""
    names = [name.strip() for name in text.split(",")]
    return [KernelParameter(name.rstrip("!"), name.endswith("!")) for name in names]


def joined(op, function, text, launch=0):
    place = IssueCollector(op.launches[launch].path)
    bound = bind(op, op.launches[launch], {function: signature(text)}, place)
    said = [f"{dotted(i.path)}: {i.message} | {i.hint}" for i in place.issues]
    assert (bound is None) == bool(said)
    return bound, "\n".join(said)


def values(bound):
    return {name: str(source) for name, source in bound.arguments}


def test_everything_by_name():
    op = op_of(text_of(let='{ rows = "numel(x) // N" }'))
    bound, _ = joined(op, "k_kernel", "x_ptr, w, b_ptr, out_ptr, N, rows, n, eps, f, BLOCK!")
    tensors = {"x_ptr": "x", "w": "w", "b_ptr": "b", "out_ptr": "out"}
    numbers = {name: name for name in ("N", "rows", "n", "eps", "f")}
    assert values(bound) == tensors | numbers
    assert [source.kind for _, source in bound.arguments] == [
        *["tensor"] * 4,
        *["int"] * 3,
        "float",
        "bool",
    ]
    assert bound.constants == ("BLOCK",)


def test_the_function_is_called_like_the_op_or_with_kernel():
    op = op_of(text_of())
    assert joined(op, "k", "x, BLOCK!")[0].function == "k"
    _, said = joined(op, "kk_kernel", "x, BLOCK!")
    assert "there is no `k` or `k_kernel` in `k.py`" in said
    assert "`kk_kernel`" in said


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("stride_am", "stride(a, 0)"),
        ("stride_a_k", "stride(a, 1)"),
        ("stride_bn", "stride(b, 1)"),
        ("stride_b_0", "stride(b, 0)"),
        ("a_stride_0", "stride(a, 0)"),
        ("a_stride_m", "stride(a, 0)"),
        ("stride_out_1", "stride(out, 1)"),
        ("stride_cm", "stride(out, 0)"),
        ("stride_cn", "stride(out, 1)"),
    ],
)
def test_strides(parameter, value):
    (gemm, _) = example("gemm")
    constants = "BLOCK_M!, BLOCK_N!, BLOCK_K!, GROUP_M!, EVEN_K!"
    listed = "stride_am, stride_bk, stride_cm, stride_ak, stride_bn, stride_cn"
    bound, said = joined(gemm, "matmul_kernel", f"c_ptr, {listed}, {parameter}, {constants}")
    assert said == ""
    assert values(bound)[parameter] == value


def test_strides_behind_an_ellipsis_count_from_the_end():
    shapes = '{ x = ["...", "M", "N"], w = ["N"], out = "x" }'
    bound, _ = joined(op_of(text_of(shapes=shapes)), "k", "stride_xm, stride_out_n, BLOCK!")
    assert values(bound) == {"stride_xm": "stride(x, -2)", "stride_out_n": "stride(out, -1)"}


@pytest.mark.parametrize(
    "parameter", ["stride_xq", "stride_x", "stride_wn1", "stride", "stride_w_7"]
)
def test_a_stride_that_is_not_clear_is_asked_for(parameter):
    _, said = joined(op_of(text_of()), "k", f"{parameter}, BLOCK!")
    assert f"`k` has no value for `{parameter}`" in said


def test_two_readings_are_none():
    """`stride_abc`: `c` of `ab`, or `bc` of `a`."""
    op = op_of(
        text_of(
            schema='"k(Tensor a, Tensor ab) -> Tensor"',
            shapes='{ a = ["bc"], ab = ["c"], out = "a" }',
            grid="[1]",
        )
    )
    _, said = joined(op, "k", "stride_abc, BLOCK!")
    assert "`k` has no value for `stride_abc`" in said


def test_everything_that_is_missing_is_listed():
    _, said = joined(op_of(text_of()), "k", "x_ptr, foo, bar, BLOCK!, BAZ!, QUX!")
    assert 'k.op[0].args: `k` has no value for `foo`, `bar` | write `args = { foo = "' in said
    assert "kernel.k.op: `k` has constants without a value: `BAZ`, `QUX` | write `constants" in said


def test_a_constant_may_be_a_launch_option():
    op = op_of(text_of(configs="[{ BLOCK = 128, num_warps = 4 }, { BLOCK = 256, num_warps = 8 }]"))
    bound, _ = joined(op, "k", "x_ptr, BLOCK!, num_warps!")
    assert bound.constants == ("BLOCK", "num_warps")
    _, said = joined(op_of(text_of()), "k", "x_ptr, BLOCK!, num_warps!")  # one candidate lacks it
    assert "has constants without a value: `num_warps`" in said


def test_a_constant_may_be_an_argument_where_the_language_allows_it(monkeypatch):
    op = op_of(text_of(args='{ B = "n" }'))
    bound, said = joined(op, "k", "x, BLOCK!, B!")
    assert (said, bound.constants) == ("", ("BLOCK",))
    assert [name for name, _ in bound.arguments] == ["x", "B"]
    monkeypatch.setattr(type(DIALECTS.get("triton")), "open_constants", False)
    _, said = joined(op, "k", "x, BLOCK!, B!")
    assert "args.B: `B` is a constant of `k`" in said


TUPLE = '{ t = ["N", "eps"] }'


@pytest.mark.parametrize(
    ("keys", "parameters", "words"),
    [
        ({"args": '{ y = "x" }'}, "x, BLOCK!", "args.y: `k` has no parameter `y`"),
        ({}, "x", "configs: `k` has no constant `BLOCK`"),
        ({}, "x, BLOCK", "configs: `BLOCK` is not a constant of `k`"),
        ({"constants": "{ X = 1 }"}, "x, BLOCK!", "constants.X: `k` has no constant `X`"),
        ({"ones": '["m"]'}, "x, n, BLOCK!", "ones: `k` has no integer argument `m`"),
        ({"divisible": '["x"]'}, "x, BLOCK!", "divisible: `x` is not an integer, but `x`"),
        ({"int64": '["eps"]'}, "eps, BLOCK!", "int64: `eps` is not an integer, but `eps`"),
        ({"args": TUPLE, "ones": '["t.1"]'}, "t, BLOCK!", "ones: `t.1` is not an integer, but"),
        ({"args": TUPLE, "ones": '["t"]'}, "t, BLOCK!", "ones: `k` has no integer argument `t`"),
    ],
)
def test_what_does_not_fit(keys, parameters, words):
    assert words in joined(op_of(text_of(**keys)), "k", parameters)[1]


def autotuned(grid):
    op = op_of(text_of(configs='"autotune"', grid=grid, constants='{ EVEN = "N % BLOCK == 0" }'))
    own = (Candidate((("BLOCK", 1),)), Candidate((("BLOCK", 2),)))
    return dataclasses.replace(op, launches=(dataclasses.replace(op.launches[0], candidates=own),))


def test_names_that_are_not_among_the_kernels_own_constants():
    _, said = joined(autotuned('["N", "cdiv(N, BLOK)"]'), "k", "x, BLOCK!, EVEN!")
    assert said == (
        "kernel.k.op[0].grid: `cdiv(N, BLOK)`: `BLOK` is unknown (column 9) | "
        "did you mean `BLOCK`? allowed: `BLOCK`, `EVEN`"
    )


def test_options_are_known_in_keep_alone():
    keys = {"keep": '["num_warps > 4"]', "constants": '{ EVEN = "num_warps" }'}
    op = op_of(text_of(configs='"autotune"', grid='["N"]', **keys))
    launch = dataclasses.replace(op.launches[0], candidates=(Candidate((("BLOCK", 1),)),))
    _, said = joined(dataclasses.replace(op, launches=(launch,)), "k", "x, BLOCK!, EVEN!")
    assert "constants.EVEN: `num_warps`: `num_warps` is unknown" in said
    assert "keep" not in said


@pytest.mark.parametrize(
    ("axis", "words"),
    [
        ("cdiv(N, BLOCK) if BLOCK is not None else 1", ""),
        ("cdiv(N, BLOCK)", "`cdiv(N, BLOCK)`: a candidate has `BLOCK = None` (column 9) | test it"),
        ("2 if has(BLOK) else 1", "`BLOK` is unknown (column 6) | did you mean `BLOCK`?"),
    ],
)
def test_the_kernels_own_candidates_with_none(axis, words):
    op = op_of(text_of(configs='"autotune"', grid=f'["{axis}"]'))
    own = (Candidate((("BLOCK", 1),)), Candidate((("BLOCK", None),)))
    launch = dataclasses.replace(op.launches[0], candidates=own)
    _, said = joined(dataclasses.replace(op, launches=(launch,)), "k", "x, N, BLOCK!")
    assert words in said
    assert bool(words) == bool(said)


def test_tensors_of_a_list_by_name():
    text = text_of(
        schema='"k(Tensor[2] xs, Tensor?[1] ys) -> Tensor"',
        shapes='{ xs = ["M", "N"], ys = ["N"], out = "xs[1]" }',
    )
    bound, _ = joined(
        op_of(text), "k", "xs_0, xs_1_ptr, ys_0, xs_1_stride_m, stride_ys_0_0, xs, BLOCK!"
    )
    assert values(bound) == {
        "xs_0": "xs[0]",
        "xs_1_ptr": "xs[1]",
        "ys_0": "ys[0]",
        "xs_1_stride_m": "stride(xs[1], 0)",
        "stride_ys_0_0": "stride(ys[0], 0) if has(ys[0]) else 0",
        "xs": "(xs[0], xs[1],)",
    }


def completed(own, **keys):
    op = op_of(text_of(configs='"autotune"', **keys))
    place = IssueCollector(op.launches[0].path)
    launch = with_candidates(op, op.launches[0], own, place)
    return launch, [f"{dotted(i.path)}: {i.message} | {i.hint}" for i in place.issues]


def test_the_kernels_own_candidates():
    own = [Candidate((("BLOCK", n),), (("num_warps", 4),)) for n in (64, 128)]
    launch, said = completed(own, keep='["BLOCK * num_warps > 256", "N > BLOCK"]')
    assert said == []
    (candidate,) = launch.candidates
    assert candidate.constants == (("BLOCK", 128),)
    assert candidate.when.names() == {"N"}


@pytest.mark.parametrize(
    ("own", "keep", "words"),
    [
        ([], "[]", "configs: the kernel defines no candidates | decorate it"),
        (
            [Candidate(options=(("num_wraps", 4),))],
            "[]",
            "`num_wraps` is not an option that kbuild passes to `triton` | did you mean",
        ),
        ([Candidate(options=(("num_warps", 3),))], "[]", "must be a power of two, not 3"),
        ([Candidate((("BLOCK", 64),))], '["BLOCK > 64"]', "keep: no candidate meets"),
        ([Candidate((("BLOCK", 0),))], '["1 // BLOCK > 64"]', "keep: `1 // BLOCK > 64`: always"),
        ([Candidate((("ACT", "a"),))], '["ACT > 64"]', "keep: `ACT > 64`: `ACT` is not an int"),
    ],
)
def test_what_is_wrong_with_the_kernels_own_candidates(own, keep, words):
    launch, said = completed(own, keep=keep)
    assert launch is None
    assert words in said[0]


def test_strides_of_a_tensor_that_may_be_none():
    bound, _ = joined(op_of(text_of()), "k", "stride_bn, stride_xn, BLOCK!")
    assert values(bound) == {
        "stride_bn": "stride(b, 0) if has(b) else 0",
        "stride_xn": "stride(x, -1)",
    }


def test_parts_of_arguments():
    args = '{ t = ["N", "eps"], d = { tensor = "x", block = ["BLOCK", 16], padding = "nan" } }'
    op = op_of(text_of(args=args, ones='["t.0"]', int64='["t.0"]'))
    bound, _ = joined(op, "k", "t, d, n, BLOCK!")
    assert [name for name, _ in bound.flat()] == ["t.0", "t.1", "d", "n"]
    parameters = ("t.0", "t.1", "d.shape.1", "d.stride.0", "d.nan", "d.tf32", "n")
    assert [str(bound.source(name)) for name in parameters] == [
        *("N", "eps", "size(x, 1)", "stride(x, 0)", "True", "False", "n")
    ]
    assert bound.source("d").kind == "descriptor"
    for name in ("t.2", "d.shape.2", "d.shape.x", "d.size.0", "x", "n.0"):
        with pytest.raises(KeyError):
            bound.source(name)


def test_strides_of_what_is_described():
    args = '{ c_desc = { tensor = "w", block = [16] } }'
    bound, _ = joined(op_of(text_of(args=args)), "k", "c_desc, stride_cn, BLOCK!")
    assert values(bound)["stride_cn"] == "stride(w, 0)"
