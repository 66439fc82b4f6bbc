from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kbuild.ops.section import read_section
from kbuild.plugins.capture.programs import CapturedArgument, merged
from kbuild.plugins.capture.sections import OpWriter
from kbuild.plugins.capture.tuning import tuning_sizes, with_tuning
from tests.support.captured_runs import argument, buffer, launch, path, tensor

X = CapturedArgument("x", "Tensor", ("M", "N"))


def sizes(
    arguments: Sequence[CapturedArgument] = (X,),
    key: Sequence[str] = ("n",),
    bounds: Mapping[str, tuple[int, int]] | None = None,
    values: Mapping[str, Sequence[Any]] | None = None,
    **more: Any,
) -> dict[str, list[Any]]:
    """The sizes of an op that launches an autotuned kernel; `build.toml` accepts them."""
    x = arguments[0].sizes
    out = tensor("b0", x)
    given = {"x_ptr": argument("x", x), "out_ptr": out, "n": {"int": "N"}, **more}
    step = launch(given, autotune=["BLOCK"], key=key)
    dtypes = {a.name: "float16" for a in arguments if a.kind.startswith("Tensor")}
    run = path([step], [buffer("b0", x)], [out], **dtypes)
    program = merged([run], [a.name for a in arguments])
    section = OpWriter("f", arguments, program, ["out"], bounds or {}, ()).section()
    found = tuning_sizes(section, arguments, program.steps, bounds or {}, values or {})
    table = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["a.py"]}
    reading = read_section("k", {**table, "op": [{**section, "tune": {"sizes": found}}]})
    assert not [issue for issue in reading.issues if issue.severity == "error"]
    assert reading.ops[0].tune.cases
    return found


def test_sizes_that_the_key_names_have_several_values() -> None:
    assert sizes() == {"M": [4096], "N": [64, 128, 512, 1024, 4096, 8192]}


def test_sizes_are_within_the_bounds() -> None:
    assert sizes(bounds={"M": (1, 100), "N": (100, 3000)}) == {
        "M": [64], "N": [128, 256, 512, 1024, 2048],
    }  # fmt: skip
    assert sizes(bounds={"N": (100, 100)})["N"] == [100]


def test_tensors_are_not_too_large() -> None:
    bounds = {"M": (1 << 17, 1 << 18), "N": (1 << 12, 1 << 14)}
    assert sizes(bounds=bounds) == {"M": [1 << 17], "N": [1 << 12]}
    wide = CapturedArgument("w", "Tensor", ("A", "B", "C", "D"))
    found = sizes((X, wide))
    assert found["A"][0] * found["B"][0] * found["C"][0] * found["D"][0] == 1 << 26


def test_leading_dimensions_are_dots() -> None:
    x = CapturedArgument("x", "Tensor", ("dim_0", "dim_1", "N"))
    assert sizes((x,), n={"int": "rows"}) == {
        "...": [64, 128, 512, 1024, 4096, 8192], "N": [4096],
    }  # fmt: skip


def test_other_arguments_have_their_usual_value() -> None:
    arguments = (
        X, CapturedArgument("bias", "Tensor?", ("N",)), CapturedArgument("eps", "float"),
        CapturedArgument("how", "bool"), CapturedArgument("mode", "str"),
    )  # fmt: skip
    values = {"eps": (1e-6,), "how": (True, False), "mode": ("mean", "sum")}
    given = {"how": {"bool": "how"}, "b_ptr": None}
    found = sizes(arguments, values=values, **given)
    assert {name: found[name] for name in values} == {
        "eps": [1e-6], "how": [True, False], "mode": ["mean"],
    }  # fmt: skip
    assert "bias" not in found


OP = {"schema": "f", "tune": {"sizes": {"M": [64, 128], "eps": [1e-6]}}}


@pytest.mark.parametrize(
    ("table", "tune"),
    [
        ({}, {"sizes": {"M": [64, 128], "eps": [1e-6]}}),
        ({"sizes": {"M": [7], "K": [1]}}, {"sizes": {"M": [7], "eps": [1e-6]}}),
        ({"cases": [{"M": 9, "K": 1}]}, {"cases": [{"M": 9, "eps": 1e-6}]}),
        (
            {"inputs": "a:b", "rtol": 0.1},
            {"sizes": {"M": [64, 128], "eps": [1e-6]}, "inputs": "a:b", "rtol": 0.1},
        ),
    ],
)
def test_what_the_author_says_of_tuning(table: dict[str, Any], tune: dict[str, Any]) -> None:
    assert with_tuning(OP, table) == {"schema": "f", "tune": tune}
    assert with_tuning({"schema": "g"}, table) == {"schema": "g"}
