"""Descriptions of calls of `cute.compile`, and what stands for `cutlass` in a package."""

from __future__ import annotations

import ctypes
import gc
import json
import weakref
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from kbuild.ops.language import LANGUAGES
from kbuild.ops.unit import KernelUnit
from kbuild.plugins.capture.cute import _launch_cutlass as cutlass
from kbuild.plugins.capture.cute import _launch_hardware as hardware
from kbuild.plugins.capture.cute._launch_describe import CompilationDescriber, UndescribedError
from kbuild.plugins.capture.cute._launch_factories import Factories

FACTORIES = Factories(["own:make_*"])


class Kernel:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, *values: Any) -> None: ...


def described(*arguments: Any, **attributes: Any) -> dict[str, Any]:
    describer = CompilationDescriber(lambda module: "own" if module == __name__ else "", FACTORIES)
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
        # The same as the DSL: `(4,?{div=4},?{div=8}):(?{i64 div=32},?{i64 div=8},1)`.
        (
            cutlass._Tensor(tensor(4, 8, 16, strides=(128, 16, 1)), 16)
            .mark_compact_shape_dynamic(mode=1, divisibility=4)
            .mark_compact_shape_dynamic(mode=2, divisibility=8),
            {
                **FIXED,
                "shape": [4, {"divisibility": 4}, {"divisibility": 8}],
                "strides": [{"divisibility": 32}, {"divisibility": 8}, 1],
            },
        ),
        (
            cutlass._Tensor(tensor(1, 8, strides=(8, 1)), 16).mark_compact_shape_dynamic(
                mode=0, stride_order=(0, 1)
            ),
            {**FIXED, "shape": [None, 8], "strides": [8, 1]},
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
        dtype=cutlass.DTYPES["Float16"],
        major=module.OperandMajorMode.K,
        pair=(1, [2.5, "x"]),
        barrier=module.NamedBarrier(barrier_id=1, num_threads=128),
    )["callable"]["attributes"]
    assert attributes == {
        "barrier": {"dsl": "NamedBarrier", "attributes": {"barrier_id": 1, "num_threads": 128}},
        "dtype": {"dtype": "Float16"},
        "major": {"enum": "OperandMajorMode.K"},
        "pair": [1, {"list": [2.5, "x"]}],
    }
    with pytest.raises(UndescribedError, match="none of the `factories` made"):
        described(apply=lambda: 1)
    with pytest.raises(UndescribedError, match="SimpleNamespace"):
        described(foreign=SimpleNamespace())


def make_scale(by: float) -> Any:
    class Scale(Kernel):
        class Bias(NamedTuple):
            value: int

    return Scale


def test_what_a_factory_makes_is_described_by_its_call() -> None:
    FACTORIES.watch("own", globals())
    kind = make_scale(by=2.0)
    made = {"call": "own:make_scale", "items": [], "keywords": {"by": 2.0}}
    call = described(kind.Bias(3), apply=kind)
    assert call["callable"]["attributes"] == {"apply": made}
    name = {"attribute": "Bias", "of": made}
    assert call["arguments"] == [{"namedtuple": name, "items": [{"number": "int"}]}]


def test_a_factory_keeps_nothing_alive() -> None:
    factories = Factories(["own:make_*"])
    namespace = {"__name__": __name__, "make_scale": make_scale}
    factories.watch("own", namespace)
    kinds = [namespace["make_scale"](by=float(count)) for count in range(3)]  # type: ignore[operator]
    assert factories.owner_of(kinds[0].Bias) == (kinds[0], "Bias")
    made = [weakref.ref(kind) for kind in kinds]
    del kinds
    gc.collect()
    assert [each() for each in made] == [None] * 3


class Driver:
    """Answers as the CUDA driver does for 132 multiprocessors."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    @staticmethod
    def cuDeviceGetAttribute(value: Any, *_: Any) -> int:  # noqa: N802 - the driver's name
        value._obj.value = 232448
        return 0

    @staticmethod
    def cuOccupancyMaxActiveClusters(count: Any, _: Any, config: Any) -> int:  # noqa: N802
        given = config._obj
        attribute = given.attributes.contents
        assert (given.shared, [*given.grid], attribute.id) == (
            232448,
            [attribute.value[0], 1, 1],
            4,
        )
        count._obj.value = 132 // attribute.value[0]
        return 0


def test_the_driver_counts_active_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver())
    assert [hardware._active_clusters(0, size) for size in (1, 2, 4)] == [132, 66, 33]
    monkeypatch.setattr(Driver, "cuModuleLoadData", lambda *_: 218, raising=False)
    with pytest.raises(RuntimeError, match="`cuModuleLoadData` of the CUDA driver failed"):
        hardware._active_clusters(0, 8)


def test_messages_name_a_call_by_its_callable_and_tensors() -> None:
    tensors = [FIXED, {**FIXED, "shape": [None, 8]}, None, {"number": "int"}]
    made = {"call": "own:make_scale", "items": ["gelu"], "keywords": {"by": 2.0}}
    for kind, name in (("own:Scale", "Scale"), (made, "make_scale(gelu)")):
        record = {"callable": {"object": kind, "attributes": {}}, "arguments": tensors}
        constants = (("record", json.dumps(record)),)
        unit = SimpleNamespace(constants=constants, target="sm_90a")
        words = LANGUAGES.get("cute-compiled").label(cast("KernelUnit", unit))
        assert [*words] == [name, "sm_90a", "BFloat16[4x8]", "BFloat16[?x8]"]


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


def test_numbers_are_passed_as_what_they_are() -> None:
    # TVM-FFI takes the first protocol that a class has, whatever its value is.
    protocols = ("__tvm_ffi_int__", "__tvm_ffi_float__", "__index__")
    for name, expected in (("Float32", (False, True, False)), ("Int64", (True, False, True))):
        kind = cutlass.DTYPES[name]
        assert tuple(hasattr(kind, protocol) for protocol in protocols) == expected
