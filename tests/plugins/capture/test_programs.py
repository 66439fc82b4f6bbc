from __future__ import annotations

import pytest

from kbuild.plugins.capture.programs import CaptureError, merged
from tests.support.captured_runs import argument, buffer, launch, path, tensor


def test_steps_of_all_paths_are_one_each() -> None:
    def run(buffer_name: str, block: int, guard: str):
        out = tensor(buffer_name)
        step = launch({"x_ptr": argument("x"), "out_ptr": out}, constants={"BLOCK": block})
        return path([step], [buffer(buffer_name)], [out], [guard])

    program = merged([run("b0", 64, "N < 8"), run("b3", 128, "N >= 8")], ["x"])
    (step,) = program.steps
    assert step.leaves == {0, 1}
    assert [step.variants[leaf]["constants"]["BLOCK"]["int"] for leaf in (0, 1)] == ["64", "128"]
    assert list(program.buffers) == ["t0"]
    assert {leaf: outputs[0]["tensor"] for leaf, outputs in program.outputs.items()} == {
        0: "t0", 1: "t0",
    }  # fmt: skip


def test_steps_keep_the_order_of_their_paths() -> None:
    first, second, third = (launch({}, line=f"a.py:{at}", written=[str(at)]) for at in range(3))
    program = merged([path([first, third]), path([second, third]), path([first, second])], [])
    assert [step.step["written"] for step in program.steps] == [["0"], ["1"], ["2"]]
    assert [step.leaves for step in program.steps] == [{0, 2}, {1, 2}, {0, 1}]


def test_the_same_step_twice_is_two_steps() -> None:
    step = launch({"x_ptr": argument("x")})
    program = merged([path([step, step]), path([step])], ["x"])
    assert [step.leaves for step in program.steps] == [{0, 1}, {0}]


def test_other_orders_are_refused() -> None:
    first, second = (launch({}, written=[name]) for name in ("a", "b"))
    with pytest.raises(CaptureError, match="different orders"):
        merged([path([first, second]), path([second, first])], [])


def test_paths_that_raise_have_no_steps() -> None:
    program = merged([path([], raises="ValueError: no"), path([launch({})])], [])
    assert [at for at, _ in program.taken()] == [1]
    assert program.steps[0].leaves == {1}
    assert list(program.outputs) == [1]


def test_buffers_of_another_line_or_shape_are_others() -> None:
    program = merged(
        [
            path([], [buffer("b0"), buffer("b1", line="a.py:2"), buffer("b2", ["M"])], x="float16"),
            path([], [buffer("b0", dtype="float32"), buffer("b1")], x="float32"),
        ],
        ["t1"],
    )
    assert [(b.name, b.sizes, b.line) for b in program.buffers.values()] == [
        ("t0", ("M", "N"), "a.py:1"),
        ("t_t1", ("M", "N"), "a.py:2"),
        ("t2", ("M",), "a.py:1"),
        ("t3", ("M", "N"), "a.py:1"),
    ]
    assert program.buffers["t0"].dtypes == {0: "float16", 1: "float32"}


def test_buffers_of_another_dtype_for_the_same_arguments_are_others() -> None:
    program = merged(
        [
            path([], [buffer("b0")], x="float16"),
            path([], [buffer("b0", dtype="float32")], x="float16"),
            path([], [buffer("b0", dtype="bfloat16")], x="bfloat16"),
        ],
        ["x"],
    )
    assert [buffer.dtypes for buffer in program.buffers.values()] == [
        {0: "float16", 2: "bfloat16"}, {1: "float32"},
    ]  # fmt: skip
