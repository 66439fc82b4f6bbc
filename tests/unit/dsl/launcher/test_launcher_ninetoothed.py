"""Launches of NineToothed kernels: what their own dispatcher does not test is tested here."""

from __future__ import annotations

import pytest

from tests.support.launcher.launched import Kernel, Record, extension, files_of, launched
from tests.support.ninetoothed_cases import ADD, completed, config, facts, tensor

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]

GRIDS = {64: "(size(x, 0) - 1) // 64 + 1", 128: "(size(x, 0) - 1) // 128 + 1"}
BLOCKS = [config(block=block, grid=grid) for block, grid in GRIDS.items()]
SQUARES = [
    config({name: tensor(m, m) for name in ("x", "y", "out")}, m=m, grid=str(m // 64))
    for m in (256, 512)
]
SQUARE = ADD.replace('"k(', '"square(').replace('["N"]', '["M", "M"]') + 'function = "k"\n'
INTO = '"into(Tensor x, Tensor y, Tensor(a!) out) -> ()"'
TARGETS = ("sm_80", "sm_90a")


def parameters(*configs):
    own = facts(*configs)
    names = [part.name + "!" * (part.kind == "constant") for part in own.parts]
    return Kernel((*names, f"{own.wide}!"))


@pytest.fixture(scope="module")
def ops(driver, tmp_path_factory):
    found = []
    for configs, keys in (
        (BLOCKS, {}),
        (BLOCKS, {"schema": INTO, "function": '"k"'}),
        (SQUARES, {"section": SQUARE}),
    ):
        op, said = completed(*configs, **keys)
        assert said == ""
        found.append(launched(op, {"k": parameters(*configs)}, TARGETS))
    files = files_of("nine", found, module=True)
    path = extension(files, tmp_path_factory.mktemp("nine"), "_nine_tests")
    torch.ops.load_library(str(path))
    return torch.ops._nine_tests


def half(*shape):
    return torch.ones(shape, dtype=torch.float16)


@pytest.fixture
def launch(driver):
    def only() -> Record:
        (record,) = driver.launches()
        return record

    driver.said()
    return only


def test_fast_code(ops, launch):
    x, y = half(4096), half(4096)
    out = ops.k(x, y)
    record = launch()
    assert record.image.split("|")[0].split() == [
        *("sm_90a", "block=64", "wide=False", "num_warps=8", "num_stages=3", "x:fp16", "fast"),
        *("x_size_0%16", "y_size_0%16", "out_size_0%16"),
    ]
    assert record.grid == (64, 1, 1)
    numbers = [record.integer(at) for at in range(6)]
    assert numbers == [x.data_ptr(), 4096, y.data_ptr(), 4096, out.data_ptr(), 4096]
    assert {len(record.parameters[at]) for at in range(6)} == {8}


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (half(4097)[1:], half(4096)),
        (half(4096), half(4103)[7:]),
        (half(8192)[::2], half(4096)),
        (half(4096), half(1).expand(4096)),
    ],
    ids=["x is not aligned", "y is not aligned", "strided", "expanded"],
)
def test_plain_code(ops, launch, x, y):
    out = ops.k(x, y)
    record = launch()
    assert "fast" not in record.image
    assert "wide=False" in record.image
    assert [record.integer(at) for at in range(9)] == [
        *(x.data_ptr(), len(x), x.stride(0)),
        *(y.data_ptr(), len(y), y.stride(0)),
        *(out.data_ptr(), len(out), 1),
    ]


def test_code_for_any_size(ops, launch):
    """The strides are what the fast image assumes; sizes do not matter to it."""
    x, y = half(4095), half(4095)
    out = ops.k(x, y)
    record = launch()
    assert "fast" in record.image
    assert "%16" not in record.image
    numbers = [record.integer(at) for at in range(6)]
    assert numbers == [x.data_ptr(), 4095, y.data_ptr(), 4095, out.data_ptr(), 4095]


def test_a_misaligned_output(ops, launch):
    out = half(4097)[1:]
    ops.into(half(4096), half(4096), out)
    record = launch()
    assert "fast" not in record.image
    assert record.integer(6) == out.data_ptr()


def test_64_bits(ops, launch):
    size = 2**31 + 64
    x, y, out = (half(1).expand(size) for _ in range(3))
    ops.into(x, y, out)
    record = launch()
    assert "wide=True" in record.image
    assert record.integer(1) == size
    assert record.grid == (size // 64, 1, 1)


def test_nothing_to_do(ops, driver):
    driver.said()
    assert ops.k(half(0), half(0)).shape == (0,)
    assert driver.launches() == []


def test_the_size_chooses_the_config(ops, launch):
    for m in (256, 512):
        ops.square(half(m, m), half(m, m))
        record = launch()
        assert f"m={m}" in record.image
        assert record.grid == (m // 64, 1, 1)


def test_another_size_is_refused(ops):
    with pytest.raises(RuntimeError, match="no candidate of `k`"):
        ops.square(half(128, 128), half(128, 128))
