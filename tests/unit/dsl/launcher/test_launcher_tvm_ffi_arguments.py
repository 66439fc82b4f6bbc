"""Arguments of functions of TVM-FFI: how many, which kinds, what of a tensor may be left out."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.launcher.functions import (
    CUDA,
    Caller,
    Raised,
    described,
    half,
    ones,
    only_launch,
)

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("tvm_ffi") is None, reason="no TVM-FFI"),
]
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
NO_KERNEL = (
    "`x` is of a dtype that no kernel is compiled for (DLPack's code 2, {}); "
    "it takes float16, bfloat16 or float32"
)


@pytest.fixture
def host() -> str:
    return "tvm-ffi"


@pytest.fixture
def caller(functions, ops) -> Caller:
    return Caller(functions.path)


class TestArguments:
    @pytest.mark.parametrize(
        ("name", "given", "words"),
        [
            ("add", (1, 2, 3, 4), "takes 2 arguments, or 3 with its results; 4 are given"),
            ("add", (1,), "takes 2 arguments, or 3 with its results; 1 is given"),
            ("split", (1, 2, 3), "takes 2 arguments, or 4 with its results; 3 are given"),
            ("scale_", (1, 2, 3, 4, 5), "takes 4 arguments; 5 are given"),
            ("_kbuild_preload", (1, 2), "takes 1 argument; 2 are given"),
            ("_kbuild_choose", (), "takes 2 arguments; 0 are given"),
        ],
    )
    def test_their_number(self, functions, ops, name, given, words):
        with pytest.raises(TypeError, match=rf"`{name}`: `{name}\(.* -> .*` {words}"):
            functions.module[name](*given)

    @pytest.mark.parametrize(
        ("name", "given", "words"),
        [
            ("add", (3, half(2)), "`x` must be a tensor, but it is an int"),
            ("add", (half(2), None), "`y` must be a tensor, but it is None"),
            ("add", (half(2), half(2), "out"), "`out` must be a tensor, but it is a str"),
            ("norm", (half(2), half(2), 1, 1.0), "`b` must be a tensor or None, but it is an int"),
            ("norm", (half(2, 2), half(2), None, "1"), "`eps` must be a float, but it is a str"),
            ("norm", (half(2, 2), half(2), None, None), "`eps` must be a float, but it is None"),
            ("scale_", (half(2), 1.0, False, 1.0), "`n` must be an int, but it is a float"),
            ("scale_", (half(2), half(1), False, 1.0), "`n` must be an int, but it is a tensor"),
            ("scale_", (half(2), 1, 1, 1.0), "`f` must be a bool, but it is an int"),
            ("scale_", (half(2), [1], False, 1.0), "`n` must be an int, but it is an array"),
        ],
    )  # fmt: skip
    def test_their_kinds(self, functions, ops, name, given, words):
        with pytest.raises(TypeError) as caught:
            functions.module[name](*given)
        assert str(caught.value).splitlines()[0] == f"`{name}`: {words}"

    def test_a_bool_is_an_int_and_an_int_is_a_float(self, functions, ops, driver):
        functions.module["scale_"](torch.zeros(5), True, True, 2)
        record = only_launch(driver)
        assert [record.integer(at) for at in (1, 2)] == [1, 1]
        assert record.parameters[3] == half(1).mul(2).numpy().tobytes()

    def test_strides_may_be_null(self, caller, driver):
        x, out = ones(3, 8), ones(3, 8)
        caller("add", described(x), described(x), described(out))
        assert only_launch(driver).integer(3) == 24
        wide = numpy.zeros((4, 64), numpy.float16)
        weights = described(numpy.ones(64, numpy.float16))
        caller("norm", described(wide), weights, None, 0.5, described(wide.copy()))
        assert "fast" in only_launch(driver).image

    def test_the_byte_offset_counts(self, caller, driver):
        x, out = ones(40), ones(40)
        shifted = described(x[:32], byte_offset=16)
        caller("add", shifted, described(x[:32]), described(out[:32]))
        record = only_launch(driver)
        assert [record.integer(at) - x.ctypes.data for at in (0, 1)] == [16, 0]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"device_type": CUDA}, "`x` is on a CUDA device; the op takes CPU tensors"),
            ({"device_type": 3}, "`x` is in pinned memory of the host; the op takes CPU tensors"),
            ({"device_type": 13}, "`x` is in managed memory; the op takes CPU tensors"),
            ({"device_type": 8}, "`x` is on another kind of device; the op takes CPU tensors"),
            ({"data": None}, "`x` has no data: is it one of Torch's fake or meta tensors?"),
            ({"ndim": 65}, "`x` has 65 dimensions; there may be 64"),
            ({"lanes": 2}, NO_KERNEL.format("16 bits x 2")),
            ({"bits": 4}, NO_KERNEL.format("4 bits")),
        ],
    )  # fmt: skip
    def test_tensors_that_are_none_for_the_op(self, caller, driver, changes, words):
        x, out = ones(4), ones(4)
        with pytest.raises(Raised) as caught:
            caller("add", described(x, **changes), described(x), described(out))
        assert str(caught.value) == f"RuntimeError: `add`: {words}"
        assert driver.launches() == []

    def test_without_data_nothing_is_read(self, caller, driver):
        empty = described(numpy.ones((0, 4), numpy.float16), data=None)
        caller("add", empty, empty, empty)
        assert driver.launches() == []
