"""Images that take arrays as cuTile's do: an address, the sizes and the strides of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kbuild.ops.image import ImageParameter
from kbuild.ops.unit import KernelUnit
from tests.support.launcher.launched import Kernel, extension, files_of, launched, ops_of

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]
TEXT = """
[kernel.arrays]
backend = "cuda"
language = "cutile"
toolchain = "cuda-tile==1.7.0"
src = ["k.py"]

[[kernel.arrays.op]]
schema = "product(Tensor a, Tensor b, float factor, int n) -> Tensor out"
shapes = { a = ["M", "K"], b = ["K"], out = ["M"] }
dtypes = ["float16"]
grid = ["cdiv(M, B)", 2]
divisible = ["a.stride.0"]
ones = ["a.stride.1"]
int64 = ["b.shape.0"]
configs = [{ B = 16, when = "M <= 16" }, { B = 64, num_ctas = 2 }]

[[kernel.arrays.op]]
schema = "flat(Tensor x, Tensor(a!) out) -> ()"
shapes = { x = ["..."], out = "x" }
dtypes = ["float32"]
contiguous = true
grid = ["cdiv(numel(x), 4)"]
"""


def array(name: str, type_: str, *parts: str, bits: int = 32) -> list[ImageParameter]:
    pointer = ImageParameter("pointer", type_, name)
    return [pointer, *(ImageParameter("int", f"i{bits}", f"{name}.{part}") for part in parts)]


def image(unit: KernelUnit) -> Mapping[str, Any]:
    """What the worker says of an image."""
    facts = {"threads": 1, "driver": 13000}
    if unit.op == "flat":
        names = ("x", "out")
        parameters = [p for name in names for p in array(name, "*fp32", "numel", "numel")]
        return {**facts, "parameters": parameters, "divisible": frozenset(names * unit.aligned)}
    matrix = ("shape.0", "shape.1", "stride.0", "stride.1")
    assumed = {"a", "b", "out", "a.stride.0"} if unit.aligned else set()
    return {
        **facts,
        "parameters": [
            *array("a", "*fp16", *matrix),
            *array("b", "*fp16", "shape.0", "stride.0", bits=64),
            *array("out", "*fp16", "shape.0", "stride.0"),
            ImageParameter("float", "fp32", "factor"),
            ImageParameter("int", "i32", "n"),
        ],
        "divisible": frozenset(assumed),
    }


KERNELS = {
    "product": Kernel(("a", "b", "out", "factor", "n", "B!"), image),
    "flat": Kernel(("x", "out"), image),
}


@pytest.fixture(scope="module")
def arrays(driver, tmp_path_factory):
    """The ops of an extension."""
    made = [launched(op, KERNELS, ("sm_90a", "sm_80")) for op in ops_of(TEXT)]
    files = files_of("arrays", made, module=True)
    path = extension(files, tmp_path_factory.mktemp("arrays"), "_arrays_tests")
    torch.ops.load_library(str(path))
    return torch.ops._arrays_tests


def half(*shape):
    return torch.ones(shape, dtype=torch.float16)


def only(driver):
    (record,) = driver.launches()
    return record


def test_the_order_of_parameters(arrays, driver):
    a, b = half(40, 32), half(64)[::2]
    out = arrays.product(a, b, 0.5, 7)
    record = only(driver)
    assert (record.grid, record.facts["block"], record.facts["shared"]) == ((1, 2, 1), "1", "0")
    assert record.attributes == []
    values = [record.integer(at) for at in range(11)]
    assert values[:5] == [a.data_ptr(), 40, 32, 32, 1]
    assert values[5:8] == [b.data_ptr(), 32, 2]
    assert values[8:] == [out.data_ptr(), 40, 1]
    sizes = [len(parameter) for parameter in record.parameters]
    assert sizes[:13] == [8, 4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4]
    assert record.integer(12) == 7


@pytest.mark.parametrize(
    ("a", "fast"),
    [
        (half(40, 32), True),
        (half(40, 40), False),
        (half(32, 40).t(), False),
        (half(40, 64)[:, ::2], False),
        (half(40 * 32 + 1)[1:].view(40, 32), False),
    ],
    ids=["rows", "stride", "transposed", "columns", "address"],
)
def test_the_general_image_is_for_what_is_not_aligned(arrays, driver, a, fast):
    arrays.product(a, half(a.shape[1]), 1.0, 0)
    assert ("fast" in only(driver).image) is fast


def test_candidates(arrays, driver):
    for rows, chosen in ((16, "B=16"), (17, "B=64 num_ctas=2")):
        arrays.product(half(rows, 32), half(32), 1.0, 0)
        assert f" {chosen} " in f"{only(driver).image} "


def test_any_shape_as_one_dimension(arrays, driver):
    x, out = torch.ones(3, 5, 2), torch.ones(3, 5, 2)
    arrays.flat(x, out)
    record = only(driver)
    assert record.grid == (8, 1, 1)
    assert [record.integer(at) for at in range(6)] == [
        *(x.data_ptr(), 30, 30),
        *(out.data_ptr(), 30, 30),
    ]


def test_what_is_beyond_32_bits(arrays, driver):
    """It is refused, and never cut off; 64 bits have room for it."""
    wide = half(1).expand(1, 2**31)
    with pytest.raises(RuntimeError) as caught:
        arrays.product(wide, wide[0], 1.0, 0)
    assert "`a.shape.1` of `product` is 2147483648, which does not fit i32" in str(caught.value)
    assert "`int64` in build.toml makes it 64 bits" in str(caught.value)
    far = torch.empty(0, dtype=torch.float16).as_strided((0, 4), (2**31, 1))
    with pytest.raises(RuntimeError, match=r"`a.stride.0` of `product` is 2147483648"):
        arrays.product(far, half(4), 1.0, 0)
    assert driver.launches() == []


def test_a_driver_that_is_too_old(arrays, driver):
    x, out = torch.ones(4), torch.ones(4)
    for tensor in (x, out):  # where no call has loaded the image
        driver.place(tensor, 8)
    driver.library.fake_version(12080)
    try:
        with pytest.raises(RuntimeError) as caught:
            arrays.flat(x, out)
        said = str(caught.value).splitlines()[0]
    finally:
        driver.library.fake_version(13000)
    assert said == (
        "`flat`: the driver is for CUDA 12.8; this kernel needs one for CUDA 13.0 (580) or later"
    )
    assert driver.launches() == []
    arrays.flat(x, out)
    assert only(driver).entry == "flat"
