"""Strings, dtypes, lists, None, results that may be None, and `sm_count()` in a shape.

`KBUILD_TEST_ARGUMENTS=FOLDER` is a variant of the project `arguments` beside this file, which needs
no GPU to be built: `kbuild build --variant torch-stable-abi211-cu130-x86_64-linux`.
"""

from __future__ import annotations

import importlib
from itertools import product
from typing import Any

import pytest

from tests.gpu.built import package

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
HALF, SINGLE = torch.float16, torch.float32


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return package("KBUILD_TEST_ARGUMENTS", "asked", tmp_path_factory.mktemp("asked")).asked


@pytest.mark.parametrize("size", [1, 300, 5000])
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("dtype", [HALF, SINGLE])
@pytest.mark.usefixtures("asked")
def test_lists_of_tensors(size: int, count: int, dtype: Any) -> None:
    joined = importlib.import_module("asked").joined
    xs = [torch.randn(2 * size, device="cuda", dtype=dtype)[::2] for _ in range(2)]
    more = [torch.randn(size, device="cuda", dtype=dtype) for _ in range(count)]
    sums = [torch.full((1,), 7.0, device="cuda") for _ in range(2)]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        out = joined(xs, sums, [*more, None] if count < 2 else more)
        torch.cuda.current_stream().synchronize()
    right = sum(xs) + sum(one * (at + 1) for at, one in enumerate(more))
    torch.testing.assert_close(out, right, rtol=2e-3, atol=4e-3)
    for found, x in zip(sums, xs, strict=True):
        torch.testing.assert_close(found[0], x.float().sum(), rtol=1e-3, atol=1e-1)
    with pytest.raises(RuntimeError, match="`xs` must have 2 tensors, but it has 1"):
        joined(xs[:1], sums, [])


def wanted(x: Any, bias: Any, dtype: Any, pad: int, named: dict[str, Any]) -> Any:
    """What the op gives, with Torch."""
    value = x.float() + (bias.float() if bias is not None else 0) + named.get("eps", 1e-6)
    window = named.get("window")
    if window is not None:
        value[:, window:] = 0
    functions = {"gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}
    value = functions[named.get("activation", "gelu")](value)
    parts = torch.arange(1, multiprocessors() + 1, device=x.device)[:, None]
    sums = value.sum(1) * parts if named.get("with_sum") else None
    return torch.nn.functional.pad(value.to(dtype), (0, pad)), sums


def multiprocessors() -> int:
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


def test_every_combination(asked: Any) -> None:
    axes = ((64, 96, 128), (HALF, SINGLE), (HALF, SINGLE), (True, False), ("gelu", "silu"))
    for size, own, dtype, has_bias, activation in product(*axes):
        x = torch.randn(7, size, device="cuda", dtype=own)
        bias = torch.randn(size, device="cuda", dtype=own) if has_bias else None
        for window, with_sum in product((None, 16, 32), (False, True)):
            named = {"activation": activation, "window": window, "with_sum": with_sum, "eps": 0.25}
            out, sums = asked(x, bias, dtype, [3], **named)
            right, totals = wanted(x, bias, dtype, 3, named)
            torch.testing.assert_close(out, right, rtol=2e-3, atol=2e-3)
            assert (sums is None) == (totals is None)
            if sums is not None:
                assert sums.shape == (multiprocessors(), 7)
                torch.testing.assert_close(sums, totals, rtol=1e-3, atol=1e-2)


def test_defaults_and_refusals(asked: Any) -> None:
    x = torch.randn(4, 64, device="cuda")
    out, sums = asked(x, None, SINGLE, [0])
    torch.testing.assert_close(out, wanted(x, None, SINGLE, 0, {})[0], rtol=1e-4, atol=1e-4)
    assert sums is None
    with pytest.raises(RuntimeError, match="ACT = another value"):
        asked(x, None, SINGLE, [0], "relu")
    with pytest.raises(RuntimeError, match="`dtype` is bfloat16; it takes float16 or float32"):
        asked(x, None, torch.bfloat16, [0])
    with pytest.raises(RuntimeError, match=r"`len\(pad\)` is 2"):
        asked(x, None, SINGLE, [0, 1])
    with pytest.raises(RuntimeError, match="N = 65"):
        asked(torch.randn(4, 65, device="cuda"), None, SINGLE, [0])


# Torch itself warns, while it imports its compiler.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_compile(asked: Any) -> None:
    """One graph; `sm_count()` is that of the device, and None stays None."""

    def model(x: Any, pad: int) -> Any:
        out, sums = asked(x * 2, None, HALF, [pad], "silu", window=16, with_sum=True)
        _, none = asked(x, None, HALF, [pad])
        return out + 1, sums.sum(0), none

    compiled = torch.compile(model, fullgraph=True)
    for rows, pad in ((3, 2), (5, 4), (5, 0)):
        x = torch.randn(rows, 96, device="cuda")
        found, right = compiled(x, pad), model(x, pad)
        assert found[2] is None
        for one, other in zip(found[:2], right[:2], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


def test_opcheck(asked: Any) -> None:
    x = torch.randn(4, 64, device="cuda")
    for arguments in ((x, None, HALF, [1]), (x, x[0].clone(), SINGLE, [0], "silu", 0.5, 32, True)):
        torch.library.opcheck(asked.default, arguments)


def test_nothing_is_kept(asked: Any) -> None:
    x = torch.randn(2, 64, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(2000):
        asked(x, x[0], HALF, [1], "silu", 0.5, 16, True)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
