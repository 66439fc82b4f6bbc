"""Calls that are refused, and the words for it."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]


def half(*shape):
    return torch.ones(shape, dtype=torch.float16)


def said(call, *arguments):
    with pytest.raises(RuntimeError) as caught:
        call(*arguments)
    return str(caught.value).splitlines()[0]


CASES = {
    "a dtype": (
        lambda ops: said(ops.add, torch.zeros(2).double(), torch.zeros(2).double()),
        "`add`: `x` is float64; it takes float16, bfloat16 or float32",
    ),
    "a dtype that no kernel has": (
        lambda ops: said(ops.add, torch.zeros(2, dtype=torch.complex64), half(2)),
        (
            "`add`: `x` is of a dtype that no kernel is compiled for (Torch's number 9); "
            "it takes float16, bfloat16 or float32"
        ),
    ),
    "two dtypes": (
        lambda ops: said(ops.add, half(2), torch.zeros(2)),
        "`add`: `y` is float32, but `x` is float16: they must be the same",
    ),
    "the dtype of what may be None": (
        lambda ops: said(ops.norm, half(2, 4), half(4), torch.zeros(4).bfloat16()),
        "`norm`: `b` is bfloat16; it takes float16 or float32",
    ),
    "shapes that differ": (
        lambda ops: said(ops.add, half(2, 3), half(3)),
        "`add`: `y` and `x` must have the same shape: their shapes are [3] and [2, 3]",
    ),
    "a rank": (
        lambda ops: said(ops.gemm, half(2), half(2, 2)),
        "`gemm`: `a` must have 2 dimensions, but its shape is [2]",
    ),
    "a least rank": (
        lambda ops: said(ops.norm, half(), half(1)),
        "`norm`: `x` must have at least 1 dimension, but its shape is []",
    ),
    "a size": (
        lambda ops: said(ops.gemm, half(2, 3), half(4, 5)),
        "`gemm`: dimension 0 of `b` must be `K`, which is 3, but its shape is [4, 5]",
    ),
    "a size of what may be None": (
        lambda ops: said(ops.norm, half(2, 4), half(4), half(5)),
        "`norm`: dimension 0 of `b` must be `N`, which is 4, but its shape is [5]",
    ),
    "contiguous": (
        lambda ops: said(ops.add, half(4, 2).t(), half(2, 4)),
        "`add`: `x` must be contiguous: its shape is [2, 4], its strides are [1, 2]",
    ),
    "contiguous, of what may be None": (
        lambda ops: said(ops.norm, half(2, 4), half(4), half(8)[::2]),
        "`norm`: `b` must be contiguous: its shape is [4], its strides are [2]",
    ),
    "a rule": (
        lambda ops: said(ops.norm, half(4, 2).t(), half(4)),
        "`norm`: the call must have `stride(x, -1) == 1` (`stride(x, -1)` is 2)",
    ),
    "a rule about numbers": (
        lambda ops: said(ops.split, torch.zeros(2, 7, dtype=torch.bfloat16), 2),
        "`split`: the call must have `K % splits == 0` (`K` is 7, `splits` is 2)",
    ),
    "the first of several rules": (
        lambda ops: said(ops.split, torch.zeros(2, 7, dtype=torch.bfloat16), 0),
        "`split`: the call must have `splits > 0` (`splits` is 0)",
    ),
    "32 bits": (
        lambda ops: said(ops.scale_, torch.zeros(2), 4),
        (
            "`scale_`: `big` of `scale_` is 4000000000, which does not fit i32; "
            "`int64` in build.toml makes it 64 bits"
        ),
    ),
    "64 bits": (
        lambda ops: said(ops.scale_, torch.zeros(2), 2**62),
        (
            "`scale_`: `n` of `scale_` is 4611686018427387904, which does not fit i32; "
            "`int64` in build.toml makes it 64 bits"
        ),
    ),
    "a constant that nothing was compiled for": (
        lambda ops: said(ops.norm, half(2, 300), half(300)),
        (
            "`norm`: no image of `norm_kernel` for this call: it needs HAS = 0, W = 512; "
            "there are images for HAS = 1, 0; W = 64, 128, 256"
        ),
    ),
    "no candidate": (
        lambda ops: said(ops.norm, half(2, 9000), half(9000)),
        (
            "`norm`: no candidate of `norm_kernel` fits this call; "
            "their conditions are `N <= 64`, `N <= 4000`, `N <= 8000`, `rows < 2`"
        ),
    ),
    "only aligned calls": (
        lambda ops: said(ops.exact, half(9, 63), half(63)),
        (
            "`exact`: every candidate of `exact` that fits sm_90 is only for aligned calls: "
            "pointers and `divisible` integers are multiples of 16, `ones` are 1"
        ),
    ),
    "a descriptor's stride": (
        lambda ops: said(ops.copy, half(4, 32).t()),
        (
            "`copy`: `copy` copies a tensor of shape [32, 4] by descriptor: "
            "its last stride must be 1, not 32"
        ),
    ),
    "a descriptor's address": (
        lambda ops: said(ops.copy, half(4, 33)[:, 1:]),
        (
            "`copy`: the CUDA driver cannot encode the descriptor of a tensor of shape [4, 32] "
            "(its address and its strides in bytes must be divisible by 16): some error (error 1)"
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words(host, ops, driver, case):
    call, words = CASES[case]
    if host == "tvm-ffi":
        words = words.replace("Torch's number 9", "DLPack's code 5, 64 bits")
    assert call(ops) == words
    assert driver.launches() == []


def test_two_devices(ops, driver):
    x, y = half(4), half(4)
    driver.place(y, 1)
    words = "`add`: `y` is on device 1, `x` on device 0: they must be on the same one"
    assert said(ops.add, x, y) == words


def test_shared_memory(ops, driver):
    """Every candidate needs more than the device has: the arch fits, the memory does not."""
    driver.device(11, "Fake tiny", 9, 0, 30_000)
    a = half(16, 16)
    driver.place(a, 11)
    words = (
        "`gemm`: `gemm` needs 40000 bytes of shared memory; a block of this device "
        "(Fake tiny, sm_90) has at most 30000"
    )
    assert said(ops.gemm, a, a) == words


def test_what_the_driver_says(ops, driver):
    driver.library.fake_fail(700)
    words = (
        "`add`: the CUDA driver cannot launch `add` with 1 x 1 x 1 blocks of 128 threads: "
        "an illegal memory access was encountered (error 700)"
    )
    assert said(ops.add, half(8), half(8)) == words


def test_a_device_that_is_not_there(ops, driver):
    (x,) = [half(4)]
    driver.place(x, 30)
    assert (
        said(ops.add, x, x)
        == "`add`: the CUDA driver cannot describe device 30: some error (error 101)"
    )


@pytest.mark.parametrize("host", ["torch"], indirect=True)
def test_no_fallback_is_installed(ops):
    """Longer ones have no candidate; nothing has registered the op that runs the DSL itself."""
    words = said(ops.late, torch.zeros(20), None, 0.5)
    assert words.startswith("`late`: no candidate of `late` fits this call; ")
    assert ", or install triton==3.9.0 (`_rich_tests::_late_jit` did not run" in words


def test_refused_calls_leak_nothing(ops):
    """Tensors that were handed in are given back, those that may be None as well."""
    x, w = half(4, 2), half(3)
    before = x._use_count(), w._use_count()
    for _ in range(3):
        said(ops.add, x.t(), x)
        said(ops.norm, x, half(2), w)
        said(ops.add, x, w)
    gc.collect()  # exceptions know the frames that they came through
    assert (x._use_count(), w._use_count()) == before
