"""Configs of a NineToothed kernel as launches, candidates and conditions of an op."""

from __future__ import annotations

import itertools

import pytest

from kbuild.dsl.languages.ninetoothed import NineToothed
from kbuild.ops.expand import expand
from kbuild.ops.expression import parse
from kbuild.ops.model import TuneProposal
from kbuild.ops.unit import ImageTarget
from tests.support.ninetoothed_cases import ADD, completed, config, tensor
from tests.support.sections import said as said_of

SQUARE = {name: tensor(512, 512) for name in ("x", "y", "out")}
SIZED = {name: tensor(512) for name in ("x", "y", "out")}
MATRICES = '{ x = ["M", "K"], y = ["K", "N"], out = ["M", "N"] }'


def ranks(*sizes):
    return {name: tensor(*[None] * n) for name, n in zip(("x", "y", "out"), sizes, strict=True)}


def test_arguments_are_asked_of_the_tensors():
    section = ADD.replace("Tensor out", "Tensor sum").replace("out =", "sum =")
    op, _ = completed(section=section, args='{ out = "sum" }')
    args = {name: str(source) for name, source in op.launches[0].args}
    assert args == {
        "x_ptr": "x",
        "x_size_0": "size(x, 0)",
        "x_stride_0": "stride(x, 0)",
        "y_ptr": "y",
        "y_size_0": "size(y, 0)",
        "y_stride_0": "stride(y, 0)",
        "out_ptr": "sum",
        "out_size_0": "size(sum, 0)",
        "out_stride_0": "stride(sum, 0)",
    }


def test_fast_code_assumes_the_last_stride_and_multiples_of_16():
    launch = completed(config(ranks(2, 2, 2)), shapes=MATRICES)[0].launches[0]
    assert launch.ones == ("x_stride_1", "y_stride_1", "out_stride_1")
    every, strides = launch.divisible
    assert {"x_stride_0", "x_size_1"} <= {*every}
    assert strides == ("x_stride_0", "y_stride_0", "out_stride_0")
    assert set(launch.int64) == {*launch.ones, *every}


@pytest.mark.parametrize(
    ("sizes", "strides", "wide"),
    [
        ((2**20,), (1,), 0),
        ((0,), (1,), 0),
        ((9,), (2**28,), 1),
        ((8,), (2**28,), 0),
        ((1,), (2**40,), 0),
        ((2**31,), (1,), 1),
        ((2**31,), (0,), 1),
        ((2**31 - 1,), (1,), 1),
        ((2**31 - 2**20,), (1,), 1),
        ((2**31 - 2**20 - 1,), (1,), 0),
    ],
    ids=str,
)
def test_64_bits_are_used_where_32_do_not_reach(sizes, strides, wide):
    launch = completed()[0].launches[0]
    (constant,) = launch.constants
    values = {}
    for name in ("x", "y", "out"):
        values |= {f"size({name}, 0)": 5, f"stride({name}, 0)": 1, f"numel({name})": 5}
    values |= {"size(y, 0)": sizes[0], "stride(y, 0)": strides[0], "numel(y)": sizes[0]}
    assert constant.expression.evaluate(values) == wide
    assert constant.choices == (False, True)


def test_64_bits_count_the_elements_of_an_expanded_matrix():
    (constant,) = completed(config(ranks(2, 2, 2)), shapes=MATRICES)[0].launches[0].constants
    values = {f"numel({name})": 1 for name in ("x", "y", "out")}
    for name, axis in itertools.product(("x", "y", "out"), (0, 1)):
        values |= {f"size({name}, {axis})": 2**16, f"stride({name}, {axis})": 0}
    assert constant.expression.evaluate(values) == 0
    assert constant.expression.evaluate({**values, "numel(x)": 2**32}) == 1
    # One without elements still says how many columns it has.
    empty = {"numel(x)": 0, "size(x, 0)": 0, "size(x, 1)": 2**32}
    assert constant.expression.evaluate({**values, **empty}) == 1


@pytest.mark.parametrize("rank", [1, 4, 6, 8])
def test_any_number_of_dimensions_and_tensors(rank):
    """The condition is a tree: what reads it calls itself for each level."""
    names = [f"t{at}" for at in range(8)]
    dims = ", ".join(f'"D{at}"' for at in range(rank))
    tensors = {name: tensor(*[None] * rank) for name in (*names, "out")}
    op, said = completed(
        config(tensors),
        schema=f'"k({", ".join(f"Tensor {name}" for name in names)}) -> Tensor out"',
        shapes="{ " + ", ".join(f"{name} = [{dims}]" for name in tensors) + " }",
    )
    assert said == ""
    (constant,) = op.launches[0].constants
    values = {f"numel({name})": 1 for name in tensors}
    for name, axis in itertools.product(tensors, range(rank)):
        values |= {f"size({name}, {axis})": 2, f"stride({name}, {axis})": 1}
    assert constant.expression.evaluate(values) == 0
    last = {f"stride(t7, {rank - 1})": 2**31}
    assert constant.expression.evaluate({**values, **last}) == 1
    assert constant.expression.evaluate({**values, "numel(t4)": 2**31}) == 1


def sized(*kinds):
    """A config whose first tensor has a size that the code is made for."""
    made = config(tensors=None)
    own = [one for one in made["parameters"] if (one["tensor"], one["kind"]) != ("x", "size")]
    own += [{"name": kind, "kind": kind, "tensor": "x", "axis": 0} for kind in kinds]
    return {**made, "parameters": own}


@pytest.mark.parametrize(
    ("kinds", "constants", "found"),
    [
        (["fixed"], '{ N = { value = "N", choices = [100, 64] } }', {"x_size_0": (100, 64)}),
        (["power"], '{ N = { value = "N", choices = [100, 65, 64] } }', {"x_power_0": (128, 64)}),
        (["power"], '{ n = { value = "next_pow2(N)", choices = [64] } }', {"x_power_0": (64,)}),
        (
            ["fixed", "power"],
            '{ N = { value = "N", choices = [100] } }',
            {"x_size_0": (100,), "x_power_0": (128,)},
        ),
    ],
)
def test_sizes_that_the_code_is_made_for(kinds, constants, found):
    op, said = completed(sized(*kinds), constants=constants)
    assert said == ""
    *own, wide = op.launches[0].constants
    assert {one.name: one.choices for one in own} == found
    assert wide.name == "wide"
    words = {"x_size_0": "N", "x_power_0": "next_pow2(N)"}
    assert {one.name: str(one.expression) for one in own} == {name: words[name] for name in found}


def test_a_size_that_the_section_writes_out():
    op, said = completed(sized("fixed", "power"), shapes="{ x = [100], y = [100], out = [100] }")
    assert said == ""
    assert [one.value for one in op.launches[0].constants] == [100, 128, None]


def test_sizes_of_the_tuning_cases_are_compiled_for():
    tune = "[kernel.k.op.tune]\ncases = [{ N = 100 }, { N = 200 }]"
    op, said = completed(sized("power"), section=f"{ADD}{tune}")
    assert said == ""
    assert op.launches[0].constants[0].choices == (128, 256)


@pytest.mark.parametrize(
    ("kinds", "constants", "words"),
    [
        (
            ["fixed"],
            None,
            "`k` is compiled for certain values of `N` | write `constants = { N = { ",
        ),
        (["power"], None, "values of `next_pow2(N)` | write `constants = { N_power = { value = "),
        (["fixed"], '{ n = { value = "next_pow2(N)", choices = [64] } }', "values of `N`"),
        ([], '{ N = { value = "N", choices = [64] } }', "`k` is not compiled for the size `N`"),
        ([], "{ a = 3 }", "`k` is not compiled for the size `3`"),
    ],
)
def test_sizes_without_values_and_values_without_sizes(kinds, constants, words):
    _, said = completed(sized(*kinds) if kinds else config(), constants=constants)
    assert words in said


def test_sizes_that_there_is_code_for_are_proposed_for_tuning():
    op, _ = completed(sized("fixed"), constants='{ N = { value = "N", choices = [100, 64] } }')
    assert op.tune.proposals == (TuneProposal((("N", 100),)), TuneProposal((("N", 64),)))


def test_bounds_are_proposed_for_tuning():
    bounds = {"x": [1 << 20], "y": [1 << 24], "out": None}
    bounded = {name: tensor(None, bounds=bound) for name, bound in bounds.items()}
    op, _ = completed(config(bounded))
    assert op.tune.proposals == (TuneProposal((), (("N", 1 << 20),)),)
    op, _ = completed(config(bounded), config(SIZED, m=512))
    assert op.tune.proposals == (TuneProposal((), (("N", 1 << 20),)), TuneProposal((("N", 512),)))
    assert completed()[0].tune.proposals == ()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_the_grid_is_that_of_the_candidate(n):
    grids = ["(size(y, 0) - 63 - 1 + 64 - 1) // 64 + 1", "(size(y, 0) - 7 - 1 + 8 - 1) // 8 + 1"]
    pair = [config(block=b, grid=grid) for b, grid in zip((64, 8), grids, strict=True)]
    (grid,) = completed(*pair)[0].launches[0].grid
    for block in (64, 8):
        assert grid.evaluate({"size(y, 0)": n, "block": block}) == -(-n // block)


def test_sizes_in_the_kernel_become_conditions():
    square = config(SQUARE, grid="16", m=512)
    loose = config(ranks(2, 2, 2), grid="size(x, 0)", m=0)
    op, said = completed(loose, square, shapes=MATRICES)
    assert said == ""
    first, second = op.launches[0].candidates  # what is made for certain sizes comes first
    assert first.when == parse("M == 512 and K == 512 and N == 512")
    assert second.when is None
    args = dict(op.launches[0].args)
    assert {"x_size_0", "x_stride_0"} <= args.keys()


def test_sizes_of_all_configs_are_required():
    op, _ = completed(config(SQUARE, block=1), config(SQUARE, block=2), shapes=MATRICES)
    assert [one.when for one in op.launches[0].candidates] == [None, None]
    assert [str(one) for one in op.require] == ["M == 512", "K == 512", "N == 512"]


def test_a_launch_that_may_be_skipped_requires_nothing_of_the_op():
    section = (
        ADD.rstrip()
        + """
[[kernel.k.op.launch]]
function = "k"
when = "N > 0"
"""
    )
    op, said = completed(config({name: tensor(512) for name in ("x", "y", "out")}), section=section)
    assert said == ""
    assert op.require == ()
    assert op.launches[0].candidates[0].when == parse("N == 512")


def test_sizes_against_the_sections_own():
    op, _ = completed(config(SQUARE), shapes='{ x = ["M", 512], y = [512, 512], out = ["M", 512] }')
    assert [str(one) for one in op.require] == ["M == 512"]


def test_numbers_of_dimensions_are_required():
    op, _ = completed(shapes='{ out = ["size(x, 0)"] }')
    assert [str(one) for one in op.require] == ["dim(x) == 1", "dim(y) == 1"]


def dtypes(*names, **more):
    tensors = {one: tensor(None, dtype=d) for one, d in zip(("x", "y", "out"), names, strict=True)}
    return config(tensors, **more)


def test_a_kernel_without_dtypes_takes_those_of_the_section():
    op, said = completed(dtypes(None, None, None), dtypes='["float16", "float64"]')
    assert said == ""
    assert op.launches[0].candidates[0].when is None


def test_candidates_of_other_dtypes_are_told_apart_by_their_size():
    small, large = dtypes("fp16", "fp16", "fp16", block=8), dtypes("fp32", "fp32", "fp32", block=4)
    op, said = completed(small, large, dtypes='["float16", "float32"]')
    assert said == ""
    units = expand(op, [ImageTarget.parse("sm_80")])
    made = {(dict(unit.dtypes)["x"], dict(unit.constants)["block"]) for unit in units}
    assert made == {("float16", 8), ("float32", 4)}


def test_text_that_depends_on_the_dtype_needs_a_config_for_each():
    def both(block):
        return [dtypes(d, d, d, text=f"x = '{d}'", block=block) for d in ("fp16", "bf16")]

    wanted = '["float16", "bfloat16"]'
    assert completed(*both(1), *both(2), dtypes=wanted)[1] == ""
    _, said = completed(*both(1), *both(2)[:1], dtypes=wanted)
    assert said == ""  # one text for block 2, so it is right for both
    third = dtypes("fp32", "fp32", "fp32", text="x = 'fp32'", block=2)
    _, said = completed(*both(1), both(2)[0], third, dtypes='["float16", "bfloat16", "float32"]')
    assert "`k` has no config for `bfloat16` with `block = 2`" in said


SCALAR = {**{name: tensor(None) for name in ("x", "y", "out")}, "alpha": tensor(dtype="fp32")}
SCALED = '"k(Tensor x, Tensor y, float alpha=1.0) -> Tensor out"'


def test_numbers():
    op, said = completed(config(SCALAR), schema=SCALED)
    assert said == ""
    assert dict(op.launches[0].args)["alpha"].kind == "float"


@pytest.mark.parametrize(
    ("dtypes", "double"),
    [(["fp16"], False), (["bf16", "fp32"], False), (["fp64"], True), (["fp32", "fp64"], True)],
)
def test_a_number_has_64_bits_where_a_config_says_so(dtypes, double):
    configs = [
        config({**SCALAR, "alpha": tensor(dtype=dtype)}, block=at)
        for at, dtype in enumerate(dtypes)
    ]
    op, said = completed(*configs, schema=SCALED)
    assert said == ""
    assert dict(op.launches[0].args)["alpha"].double is double


def test_whole_numbers_have_the_width_of_the_kernel():
    long = {**SCALAR, "alpha": tensor(dtype="i64")}
    schema = '"k(Tensor x, Tensor y, int alpha) -> Tensor out"'
    assert "alpha" in completed(config(long), schema=schema)[0].launches[0].int64
    short = {**SCALAR, "alpha": tensor(dtype="i32")}
    assert "alpha" not in completed(config(short), schema=schema)[0].launches[0].int64


FIXED = {**SCALAR, "alpha": tensor(dtype="fp32", constant=True, value=2.0)}


def test_a_number_that_premake_fixes_is_no_argument():
    op, said = completed(config(FIXED))
    assert said == ""
    assert "alpha" not in dict(op.launches[0].args)


@pytest.mark.parametrize(
    ("configs", "lines", "words"),
    [
        (
            [config(mode=mode, grid=grid) for mode, grid in (("a", "1"), ("b", "2"))],
            {},
            "no integer argument selects the grid of `k`",
        ),
        ([config(grid="size(x, 0) ** 2")], {}, "the grid of `k` is `size(x, 0) ** 2`"),
        (
            [config(SQUARE)],
            {"shapes": '{ x = ["M", 256], y = [256, 512], out = ["M", 512] }'},
            "kernel.k.op[0].shapes.x: dimension 1 is 256, but 512 in a config",
        ),
        (
            [config(ranks(2, 1, 1))],
            {},
            "shapes.x: says 1 for the number of dimensions; `x` of `k` has 2",
        ),
        (
            [],
            {"shapes": '{ x = ["..."], y = ["N"], out = "x" }'},
            "shapes.x: `x` may have any number of dimensions",
        ),
        (
            [],
            {"dtypes": '["float16", "float32"]'},
            "dtypes: `k` has no config for `float32` | add one, or leave it out here",
        ),
        (
            [config(), dtypes("bf16", "bf16", "bf16", block=1)],
            {},
            "dtypes: `k` has configs for `bfloat16`: config 2 | add the dtype here",
        ),
        (
            [config(SCALAR)],
            {"schema": SCALED.replace("float alpha=1.0", "int alpha")},
            "`alpha` is a `float32`, but `alpha` is an int",
        ),
        (
            [config(SCALAR)],
            {"schema": SCALED.replace("float alpha=1.0", "Tensor alpha")},
            "`alpha` of `k` is a number, not `alpha`",
        ),
        (
            [config({**SCALAR, "alpha": tensor(dtype="u64")})],
            {"schema": SCALED},
            "`alpha` is a `uint64` number, which an op cannot pass",
        ),
        (
            [config(FIXED)],
            {"args": "{ alpha = 1.0 }"},
            "`alpha` is fixed by the premake function of `k`",
        ),
        (
            [],
            {"schema": '"k(Tensor x, Tensor z) -> Tensor out"', "shapes": '{ out = "x" }'},
            "`k` has no value for `y` | write `args = { y =",
        ),
        ([], {"args": '{ w = "x" }'}, "`w` is not a parameter of `k`"),
        ([config(N=1), config(N=2)], {}, "`N` is a parameter of the premake function as well"),
        (
            [],
            {
                "schema": '"k(Tensor x, Tensor? y) -> Tensor out"',
                "shapes": '{ x = ["N"], out = "x" }',
            },
            "`y` may be None, which NineToothed kernels do not support",
        ),
        (
            [config(written=("out", "y"))],
            {},
            "schema: `k` writes to `y`, but the schema does not say so | write `Tensor(a!) y`",
        ),
        ([config(written=())], {}, "schema: `k` writes nothing to the result `out`"),
    ],
)
def test_what_is_refused(configs, lines, words):
    assert words in completed(*configs, **lines)[1]


def test_the_kernel_is_found_by_the_ops_name():
    section = ADD.replace('"k(', '"other(')
    _, said = completed(section=section)
    assert "function: there is no kernel `other` in `k.py`" in said
    assert completed(section=section, function='"k"')[1] == ""


def test_there_is_no_fallback():
    said = said_of(f'{ADD}fallback = "jit"\n')
    assert "9: kernel.k.op[0].fallback: kbuild cannot launch `ninetoothed` kernels" in said


@pytest.mark.parametrize(
    "line", ["grid = [1]", "configs = [{ BLOCK = 1 }]", 'ones = ["x"]', "matrix = { A = [1] }"]
)
def test_what_the_kernel_says_itself(line):
    key = line.partition(" ")[0]
    said = said_of(f"{ADD}{line}\n")
    assert f"9: kernel.k.op[0].{key}: `ninetoothed` kernels set this in their source" in said


def test_both_distributions_are_pinned():
    said = said_of(ADD.replace(', "triton==3.9.0"', ""))
    assert "3: kernel.k.toolchain: does not say which version of `triton` compiles this" in said
    assert 'pin both: `toolchain = ["ninetoothed==<version>", "triton==<version>"]`' in said


def test_the_environment():
    language = NineToothed()
    pins = ("ninetoothed==0.26.0", "triton==3.9.0")
    assert language.unsupported_reason(pins) is None
    assert "0.26" in language.unsupported_reason(("ninetoothed==0.9.0", "triton==3.9.0"))
    assert "Triton" in language.unsupported_reason(pins[:1])
    assert "NineToothed" in language.unsupported_reason(pins[1:])
    names = [pin.partition("==")[0] for pin in language.requirements(pins)]
    assert names == ["ninetoothed", "triton", "sympy", "mpmath"]
    assert "sympy==1.13.3" in language.requirements((*pins, "sympy==1.13.3"))
    assert "sympy==1.14.0" not in language.requirements((*pins, "sympy==1.13.3"))
