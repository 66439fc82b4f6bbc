"""Descriptions of calls of `cute.compile`, and what stands for `cutlass` in a package."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.plugins.capture.cute import _launch_cutlass as cutlass
from kbuild.plugins.capture.cute._launch_describe import CompilationDescriber, UndescribedError


class Kernel:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, *values: Any) -> None: ...


def described(*arguments: Any, **attributes: Any) -> dict[str, Any]:
    describer = CompilationDescriber(lambda module: "own" if module == __name__ else "")
    return describer.call(Kernel(**attributes), arguments, {})


def tensor(*sizes: int, strides: tuple[int, ...], dtype: str = "bfloat16") -> Any:
    return SimpleNamespace(dtype=f"torch.{dtype}", shape=sizes, stride=lambda: strides)


FIXED = {"dlpack": "BFloat16", "shape": [4, 8], "strides": [8, 1], "align": 16}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (cutlass._Tensor(tensor(4, 8, strides=(8, 1)), 16), FIXED),
        (
            cutlass._Tensor(tensor(4, 8, strides=(8, 1)), 16).mark_layout_dynamic(),
            {**FIXED, "shape": [None, None], "strides": [None, 1]},
        ),
        # Of two strides of 1, that of a size above 1 is the leading one's.
        (
            cutlass._Tensor(tensor(1, 8, strides=(1, 1)), 16).mark_layout_dynamic(),
            {**FIXED, "shape": [None, None], "strides": [None, 1]},
        ),
        (
            cutlass._Tensor(tensor(4, 8, strides=(1, 4)), 16).mark_layout_dynamic(leading_dim=0),
            {**FIXED, "shape": [None, None], "strides": [1, None]},
        ),
        (
            cutlass._Tensor(tensor(4, 8, strides=(16, 2), dtype="float32")).mark_layout_dynamic(),
            {"dlpack": "Float32", "shape": [None, None], "strides": [None, None], "align": 4},
        ),
        (
            cutlass.make_ptr(cutlass.DTYPES["Float16"], 64, cutlass.AddressSpace.gmem),
            {"pointer": "Float16", "memory": "gmem", "align": 2},
        ),
        (cutlass.DTYPES["Int64"](3), {"number": "Int64"}),
        (3, {"number": "int"}),
        (None, None),
    ],
)
def test_an_argument(argument: Any, expected: Any) -> None:
    assert described(argument)["arguments"] == [expected]


def test_a_size_that_occurs_twice_is_one() -> None:
    rows, columns = cutlass.sym_int(), cutlass.sym_int(divisibility=8)
    x, y = (
        cutlass.make_fake_compact_tensor(cutlass.DTYPES["Float16"], shape, stride_order=(1, 0))
        for shape in ((rows, columns), (columns, rows))
    )
    first, second = described(x, y)["arguments"]
    assert first["shape"] == [{"symbol": 0}, {"symbol": 1, "divisor": 8}]
    assert first["strides"] == [{"symbol": 2, "bits": 64, "divisor": 8}, 1]
    assert second["shape"] == [{"symbol": 1}, {"symbol": 0}]


def test_attributes_of_the_callable() -> None:
    module = cutlass.AbsentModule("cutlass.cute.nvgpu")
    attributes = described(
        dtype=cutlass.DTYPES["Float16"], major=module.OperandMajorMode.K, pair=(1, [2.5, "x"])
    )["callable"]["attributes"]
    assert attributes == {
        "dtype": {"dtype": "Float16"},
        "major": {"enum": "OperandMajorMode.K"},
        "pair": [1, {"list": [2.5, "x"]}],
    }
    with pytest.raises(UndescribedError, match="another function makes"):
        described(apply=lambda: 1)
    with pytest.raises(UndescribedError, match="SimpleNamespace"):
        described(foreign=SimpleNamespace())


def test_names_of_kernels_exist_and_cannot_be_called() -> None:
    cute = cutlass.AbsentModule("cutlass.cute")

    class Own(cute.core.ThrMma):  # type: ignore[misc]
        pass

    assert Own() is not None
    assert cute.struct(Own) is Own
    with pytest.raises(RuntimeError, match=r"`cute.make_layout` was called outside of a kernel"):
        cute.make_layout((1, 2))
    assert cutlass.Arch.sm_90a >= cutlass.Arch.sm_90
    assert not cutlass.Arch.sm_100a.is_family_of(cutlass.Arch.sm_90a)
