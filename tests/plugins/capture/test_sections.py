from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kbuild.ops.section import read_section
from kbuild.plugins.capture.programs import CapturedArgument, CaptureError, Path, merged
from kbuild.plugins.capture.sections import OpWriter
from tests.support.captured_runs import argument, buffer, launch, path, shape, tensor

X = CapturedArgument("x", "Tensor", ("M", "N"))
OUT = tensor("b0")


def written(
    paths: Sequence[Path],
    arguments: Sequence[CapturedArgument] = (X,),
    outputs: Sequence[str] = ("out",),
    bounds: Mapping[str, tuple[int, int]] | None = None,
    contiguous: Sequence[str] = (),
) -> dict[str, Any]:
    """The section of an op; the language of `build.toml` accepts it."""
    program = merged(paths, [argument.name for argument in arguments])
    writer = OpWriter("f", arguments, program, outputs, bounds or {}, contiguous)
    section = writer.section()
    table = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["a.py"], "op": [section]}
    issues = [i for i in read_section("k", table).issues if i.severity == "error"]
    assert issues == []
    return section


def run(
    guards: Sequence[str] = (), out: Mapping[str, Any] = OUT, made: Any = None, **more: Any
) -> Path:
    """A launch of `x` into a new tensor, which is the result."""
    step = launch({"x_ptr": argument("x"), "out_ptr": tensor("b0"), "N": {"int": "N"}}, **more)
    return path([step], [made or buffer("b0")], [out], guards)


def test_one_launch_is_one_op() -> None:
    section = written([run(constants={"BLOCK": 64}, options={"num_warps": 8})])
    assert section == {
        "schema": "f(Tensor x) -> (Tensor out)",
        "shapes": {"x": ["M", "N"], "out": ["M", "N"]},
        "dtypes": {"x": "float16", "out": "float16"},
        "launch": [
            {
                "function": "k",
                "args": {"x_ptr": "x", "out_ptr": "out", "N": "N"},
                "grid": ["M"],
                "divisible": ["N"],
                "constants": {"BLOCK": 64},
                "configs": [{"num_warps": 8}],
            }
        ],
    }


@pytest.mark.parametrize(
    ("value", "assumed"),
    [
        ("N", {"divisible": ["n"]}),
        ("M", {"divisible": [["n"], []]}),
        ("M * N", {"divisible": ["n"]}),
        ("16 * N", {"divisible": ["n"]}),
        ("8 * N * 2", {"divisible": ["n"]}),
        ("stride(x, 0)", {"divisible": ["n"]}),
        ("2 * stride(x, 0)", {"divisible": ["n"]}),
        ("M * stride(x, 0)", {"divisible": [["n"], []]}),
        ("0", {"divisible": ["n"]}),
        ("48", {"divisible": ["n"]}),
        ("stride(x, 1)", {"ones": ["n"]}),
        ("1", {"ones": ["n"]}),
        ("8", {}),
        ("M // 4", {}),
        ("M + N", {}),
    ],
)
def test_integers_that_aligned_images_assume(value: str, assumed: Mapping[str, Any]) -> None:
    arguments = {"x_ptr": argument("x"), "out_ptr": OUT, "n": {"int": value}}
    section = written([path([launch(arguments)], [buffer("b0")], [OUT])])
    (step,) = section["launch"]
    assert {name: step[name] for name in ("divisible", "ones") if name in step} == assumed


def test_aligned_images_are_for_any_number_of_tokens() -> None:
    numbers = {"m": {"int": "M"}, "n": {"int": "N"}, "s": {"int": "stride(x, 0)"}}
    arguments = {"x_ptr": argument("x"), "out_ptr": OUT, **numbers}
    section = written([path([launch(arguments)], [buffer("b0")], [OUT])])
    (step,) = section["launch"]
    assert step["divisible"] == ["n", "s"]


def test_a_dimension_that_most_tensors_have_further_out_is_no_row() -> None:
    """Sums over rows end with it, and what is computed row by row does not."""
    numbers = {"m": {"int": "M"}, "row": {"int": "2 * N"}}
    step = launch({"x_ptr": argument("x"), "sums_ptr": tensor("b1", ["M"]), **numbers})
    made = [buffer("b0"), buffer("b1", ["M"])]
    (step,) = written([path([step], made, [OUT])])["launch"]
    assert step["divisible"] == ["row"]


def test_integers_that_do_not_matter_are_not_assumed() -> None:
    step = {
        **launch({"x_ptr": argument("x"), "out_ptr": OUT, "n": {"int": "N"}}),
        "specialized": [],
    }
    section = written([path([step], [buffer("b0")], [OUT])])
    assert "divisible" not in section["launch"][0]


def test_a_cast_of_some_paths_is_one_of_all() -> None:
    """`x.to(dtype)` is `x` where it has that dtype: there it is a copy."""
    paths = []
    for dtype in ("float16", "float32"):
        first = launch({"x_ptr": argument("x", dtype=dtype), "out_ptr": tensor("b0")})
        cast = {
            "aten": "_to_copy",
            "arguments": [tensor("b0", dtype="float32"), {"dtype": dtype}, None],
            "results": ["b1"],
            "written": [],
            "line": "a.py:4",
        }
        made = [buffer("b0", dtype="float32"), buffer("b1", line="a.py:4", dtype=dtype)]
        is_cast = dtype == "float16"
        steps = [first, *[cast] * is_cast]
        out = tensor("b1" if is_cast else "b0", dtype=dtype)
        answers = [("dtype(x) == 'float16'", is_cast)]
        paths.append(path(steps, made[: 1 + is_cast], [out], answers=answers, x=dtype))
    section = written(paths)
    assert section["dtypes"] == {"x": ["float16", "float32"], "t0": "float32", "out": "x"}
    assert section["launch"][1] == {
        "aten": "_to_copy",
        "arguments": ["t0", {"dtype": "x"}, "None"],
        "results": ["out"],
    }


def test_a_constant_has_all_its_values_within_the_bounds() -> None:
    section = written(
        [run(constants={"BLOCK": "next_pow2(N)", "ROWS": "N // 16 + 1"})], bounds={"N": (3, 33)}
    )
    (step,) = section["launch"]
    assert step["constants"] == {
        "BLOCK": {"value": "next_pow2(N)", "choices": [4, 8, 16, 32, 64]},
        "ROWS": {"value": "N // 16 + 1", "choices": [1, 2, 3]},
    }
    assert section["require"] == ["N >= 3", "N <= 33"]


@pytest.mark.parametrize(
    ("span", "required"),
    [((1, 2**31 - 1), ["N >= 1"]), ((1, 9), ["N >= 1", "N <= 9"]), ((3, 2**31 - 1), ["N >= 3"])],
)
def test_calls_outside_of_a_declared_size_are_refused(
    span: tuple[int, int], required: list[str]
) -> None:
    assert written([run()], bounds={"N": span})["require"] == required


def test_a_constant_without_bounds_is_a_power_of_two_or_an_argument() -> None:
    section = written([run(constants={"BLOCK": "next_pow2(N)", "n": "N"})])
    (step,) = section["launch"]
    assert step["constants"]["BLOCK"]["choices"] == [1 << at for at in range(21)]
    assert "n" not in step["constants"]
    assert step["args"]["n"] == "N"
    assert step["divisible"] == ["N", "n"]


def test_a_number_is_a_constant_where_a_path_has_one_value_of_it() -> None:
    arguments = (X, CapturedArgument("eps", "float"))
    constants = {"EPS": {"float": "eps"}}
    one, other = (run([guard], constants=constants) for guard in ("eps == 0.0", "eps != 0.0"))
    other = replace(other, steps=[{**other.steps[0], "grid": ["1"]}])
    first, second = written([one, other], arguments)["launch"]
    assert (first["when"], first["constants"]) == ("eps == 0.0", {"EPS": 0.0})
    assert (second["when"], second["args"]["EPS"]) == ("eps != 0.0", "eps")


def test_candidates_of_the_kernel_are_for_every_path() -> None:
    tuned = {"autotune": ["BLOCK"], "key": ["N"]}
    section = written(
        [
            run(["N < 64"], constants={"HOW": 1, "NAME": {"string": "a"}}, **tuned),
            run(["N >= 64", "N < 256"], constants={"HOW": 2, "NAME": None}, **tuned),
            run(["N >= 64", "N >= 256"], constants={"HOW": 1, "NAME": {"string": "a"}}, **tuned),
        ]
    )
    (step,) = section["launch"]
    assert step["configs"] == "autotune"
    text = "1 if N >= 64 and N < 256 else (0)"
    assert step["constants"] == {
        "HOW": {"value": text, "choices": {"0": 1, "1": 2}},
        "NAME": {"value": text, "choices": {"0": "a", "1": "None"}},
    }


def test_an_option_beside_candidates_is_refused() -> None:
    with pytest.raises(CaptureError, match="autotuned kernel with the option `launch_pdl`"):
        written([run(options={"launch_pdl": True}, key=[])])


def test_other_launch_options_are_refused() -> None:
    with pytest.raises(CaptureError, match="has the launch option `grf_mode`") as caught:
        written([run(options={"grf_mode": 2})])
    assert caught.value.place == "a.py:2"
    (step,) = written([run(options={"launch_pdl": True, "num_stages": 2})])["launch"]
    assert step["configs"] == [{"launch_pdl": True, "num_stages": 2}]


def test_descriptors_have_a_block_and_a_view() -> None:
    described = {"block": [16, 64], "layout": {"transposed": True}}
    whole = {**argument("x"), "descriptor": described}
    part = {**whole, "sizes": ["M", "64"], "descriptor": {"block": [8, 64]}}
    step = launch({"x_desc": whole, "part_desc": part, "out_ptr": OUT})
    section = written([path([step], [buffer("b0")], [OUT], ())])
    (launched,) = section["launch"]
    assert launched["args"]["x_desc"] == {"tensor": "x", **described}
    assert launched["args"]["part_desc"] == {"tensor": "x_1", "block": [8, 64]}
    assert section["views"]["x_1"]["shape"] == ["M", 64]


def test_parts_of_tensors_are_views() -> None:
    part = {"tensor": "x", **shape(["M", "2"], ["stride(x, 0)", "1"], "float16"), "offset": "4"}
    step = launch({"x_ptr": part, "out_ptr": OUT})
    section = written([path([step], [buffer("b0")], [OUT])])
    assert section["views"] == {
        "x_1": {"of": "x", "shape": ["M", 2], "strides": ["stride(x, 0)", 1], "offset": 4}
    }
    assert section["launch"][0]["args"]["x_ptr"] == "x_1"


def test_a_result_may_be_another_shape_of_its_memory() -> None:
    flat = tensor("b0", ["M * N"], ["1"])
    assert written([run(out=flat)])["shapes"]["out"] == ["M * N"]
    turned = tensor("b0", ["N", "M"], ["1", "N"])
    section = written([run(out=turned)])
    assert section["views"] == {
        "out": {"of": "out_memory", "shape": ["N", "M"], "strides": [1, "N"]}
    }
    assert section["shapes"] == {"x": ["M", "N"], "out_memory": ["M", "N"]}
    assert section["temporaries"] == ["out_memory"]


def test_a_result_may_be_a_part_of_its_memory() -> None:
    half = tensor("b0", ["M", "N // 2"], ["N", "1"], offset="N // 2")
    section = written([run(out=half)])
    assert section["views"] == {
        "out": {
            "of": "out_memory",
            "shape": ["M", "N // 2"],
            "strides": ["N", 1],
            "offset": "N // 2",
        }
    }
    assert section["temporaries"] == ["out_memory"]


def test_a_second_part_of_the_same_memory_is_copied() -> None:
    halves = [tensor("b0", ["M", "N // 2"], ["N", "1"], offset=at) for at in ("0", "N // 2")]
    step = launch({"x_ptr": argument("x"), "out_ptr": OUT})
    section = written([path([step], [buffer("b0")], halves)], outputs=("out0", "out1"))
    assert section["schema"] == "f(Tensor x) -> (Tensor out0, Tensor out1)"
    assert section["shapes"]["out1"] == ["M", "N // 2"]
    assert section["dtypes"]["out1"] == "float16"
    assert section["views"]["out0_memory_1"]["offset"] == "N // 2"
    assert section["launch"][1] == {
        "aten": "clone",
        "arguments": ["out0_memory_1", {"string": "contiguous_format"}],
        "results": ["out1"],
    }


def test_a_shape_may_depend_on_the_path() -> None:
    rows = tensor("b0", ["M", "1"], ["1", "1"])
    one = run(["N < 8"], out=rows, made=buffer("b0", ["M", "1"]))
    section = written([one, run(["N >= 8"])])
    assert section["shapes"]["out"] == ["M", "(N if N >= 8 else 1)"]


def test_leading_dimensions_are_dots() -> None:
    sizes = ("dim_0", "dim_1", "N")
    step = launch({"x_ptr": argument("x", sizes), "out_ptr": tensor("b0", sizes)})
    step = {**step, "grid": ["rows"]}
    section = written(
        [path([step], [buffer("b0", sizes)], [tensor("b0", sizes)])],
        [CapturedArgument("x", "Tensor", sizes)],
    )
    assert section["shapes"] == {"x": ["...", "N"], "out": ["...", "N"]}
    assert section["require"] == ["dim(x) > 1", "dim(x) <= 4"]
    assert section["let"] == {"rows": "numel(x) // max(N, 1)"}


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (
            [run(["N < 8"]), run(["N >= 8"], out=tensor("b0", ["M * N"], ["1"]))],
            "different shapes on different paths",
        ),
        ([run(made=buffer("b0", aliases="x"))], "may be an argument's memory"),
        (
            [run(["N < 8"]), run(["N >= 8"], made=buffer("b0", dtype="float32"))],
            "the dtype of a result depends on the path",
        ),
        (
            [
                run(["N < 8"], made=buffer("b0", fill={"int": "0"})),
                run(["N >= 8"], made=buffer("b0", fill={"int": "1"})),
            ],
            "has other values in the beginning on other paths",
        ),
    ],
)
def test_what_no_op_can_do_is_refused(paths: Sequence[Path], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        written(paths)
