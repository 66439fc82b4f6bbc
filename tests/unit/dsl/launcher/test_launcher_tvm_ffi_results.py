"""Results of functions of TVM-FFI: new ones, those that callers make, memory for a call."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.launcher.functions import Caller, described, half, ones, only_launch

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="no TVM-FFI"),
]
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


@pytest.fixture
def host() -> str:
    return "tvm-ffi"


@pytest.fixture
def caller(functions, ops) -> Caller:
    return Caller(functions.path)


class TestResults:
    def test_new_ones_belong_to_the_caller(self, ops):
        out = ops.add(half(3, 5), half(3, 5))
        assert (type(out), out.shape, out.dtype) == (torch.Tensor, (3, 5), torch.float16)
        assert out._use_count() == 1

    def test_several(self, functions, ops):
        found = functions.module["split"](torch.zeros(4, 8).bfloat16(), 2)
        assert [(one.shape, one.dtype) for one in found] == [
            ((4,), torch.bfloat16),
            ((2, 2), torch.int64),
        ]

    def test_none(self, ops):
        assert ops.scale_(torch.zeros(4)) is None

    def test_those_that_the_caller_made(self, functions, ops, driver):
        x, out = half(40), half(40)
        assert functions.module["add"](x, x, out) is None
        assert only_launch(driver).integer(2) == out.data_ptr()

    def test_several_that_the_caller_made(self, functions, ops, driver):
        a, first = torch.zeros(4, 8).bfloat16(), torch.zeros(4).bfloat16()
        second = torch.zeros(2, 2, dtype=torch.int64)
        assert functions.module["split"](a, 2, first, second) is None
        assert driver.launches()[1].integer(1) == first.data_ptr()

    @pytest.mark.parametrize(
        ("out", "words"),
        [
            (lambda: half(3), "`out` must have the shape [2], but its shape is [3]"),
            (lambda: half(2, 1), "`out` must have the shape [2], but its shape is [2, 1]"),
            (lambda: torch.zeros(2), "`out` is float32; it takes float16"),
            (
                lambda: half(4)[::2],
                "`out` must be contiguous: its shape is [2], its strides are [2]",
            ),
        ],
    )
    def test_those_that_do_not_fit(self, functions, ops, driver, out, words):
        with pytest.raises(RuntimeError) as caught:
            functions.module["add"](half(2), half(2), out())
        assert str(caught.value).splitlines()[0] == f"`add`: {words}"
        assert driver.launches() == []

    def test_one_on_another_device(self, functions, ops, driver):
        out = half(2)
        driver.place(out, 1)
        words = "`add`: `out` is on device 1, the arguments are on device 0"
        with pytest.raises(RuntimeError, match=words):
            functions.module["add"](half(2), half(2), out)


class TestArrays:
    """Those of NumPy: nothing allocates for them."""

    def test_results_are_the_callers(self, functions, ops, driver):
        x, out = ones(40), ones(40)
        assert functions.module["add"](x, x, out) is None
        assert only_launch(driver).integer(2) == out.ctypes.data
        words = (
            "`add`: nothing allocates `out` for these arguments: give the results behind them, "
            "or call it with tensors of Torch"
        )
        with pytest.raises(RuntimeError) as caught:
            functions.module["add"](x, x)
        assert str(caught.value).splitlines()[0] == words

    def test_memory_for_the_call_is_the_drivers(self, functions, ops, driver):
        driver.use_stream(0, 0xABC0)
        functions.module["odd"](numpy.zeros(7, numpy.float32), 2, 1, numpy.zeros(7, numpy.float32))
        words = [line.split(" C=")[0] for line in driver.said() if not line.startswith("load")]
        assert words == [
            f"allocate {2 * 100 + 1024} stream=0xabc0",
            "launch sm_90a",
            "release stream=0xabc0",
        ]
        assert driver.library.fake_depth() == 0

    def test_memory_that_the_driver_does_not_have(self, functions, ops, driver):
        x, out = (numpy.zeros(7, numpy.float32) for _ in range(2))
        words = r"`odd`: the CUDA driver cannot give \d+ bytes for `the scratch memory`: some error"
        with pytest.raises(RuntimeError, match=words):
            functions.module["odd"](x, 2**31 - 1, 60_000, out)

    def test_temporaries(self, caller, driver):
        """Through C, since NumPy has no bfloat16."""
        a = described(numpy.zeros((4, 8), numpy.uint16), code=4)
        out = described(numpy.zeros(4, numpy.uint16), code=4)
        caller("split", a, 2, out, described(numpy.zeros((2, 2), numpy.int64)))
        kinds = [line.split()[0] for line in driver.said() if not line.startswith("load")]
        assert kinds == ["allocate", "launch", "launch", "release"]
