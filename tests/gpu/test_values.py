"""Results that are zeroed and filled: side streams, graphs, devices, threads, every width.

`KBUILD_TEST_VALUES=FOLDER` is a variant of the project `values` beside this file, which needs no
GPU to be built: `kbuild build --variant torch-stable-abi211-cu130-x86_64-linux`.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.gpu.built import package

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
SHAPE = (200, 10_007)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return package("KBUILD_TEST_VALUES", "values", tmp_path_factory.mktemp("values"))


def poison(device: Any) -> None:
    """What is allocated next holds something."""
    for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24):
        torch.full((size,), 3.0e30, device=device)
    torch.cuda.synchronize(device)


def right(kernel: Any, x: Any) -> bool:
    sums, most = kernel.column_sums(x)
    torch.testing.assert_close(sums, x.sum(0), rtol=1e-3, atol=1e-2)
    return torch.equal(most, x.amax(0))


def test_sums(kernel: Any, device: Any) -> None:
    x = torch.randn(SHAPE, device=device)
    for _ in range(3):
        poison(device)
        assert right(kernel, x)
    assert kernel.column_sums(torch.empty(5, 0, device=device))[0].shape == (0,)


def test_what_hooks_say(kernel: Any, device: Any) -> None:
    x, calls = torch.randn(SHAPE, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    for count in range(1, 4):
        poison(device)
        sums = kernel.tuned_sums(x, calls)
        torch.testing.assert_close(sums, 2 * x.sum(0), rtol=1e-3, atol=1e-2)
        assert calls.item() == count


@pytest.mark.parametrize("size", [0, 1, 1003, (1 << 26) + 1])
def test_every_width(kernel: Any, device: Any, size: int) -> None:
    poison(device)
    x = torch.empty(size, device=device)
    values = (0, 0.1, -3, 1.1, 4886718345, True)
    for result, value in zip(kernel.untouched(x), values, strict=True):
        wanted = torch.full((size,), value, dtype=result.dtype, device=device)
        assert torch.equal(result.view(torch.uint8), wanted.view(torch.uint8)), result.dtype


def test_a_side_stream(kernel: Any, device: Any) -> None:
    """Values come behind what the stream does before, in memory that it has used."""
    stream = torch.cuda.Stream(device)
    x = torch.randn(SHAPE, device=device)
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        for _ in range(5):
            torch.cuda._sleep(20_000_000)
            torch.full((SHAPE[1],), 1e30, device=device)
            assert right(kernel, x)


def test_a_graph(kernel: Any, device: Any) -> None:
    with torch.cuda.device(device):
        x = torch.randn(SHAPE, device=device)
        assert right(kernel, x)
        calls = torch.zeros(1, dtype=torch.int32, device=device)
        kernel.tuned_sums(x, calls)
        kernel.untouched(x[0])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            sums, most = kernel.column_sums(x)
            twice = kernel.tuned_sums(x, calls)
            others = kernel.untouched(x[0])
        for _ in range(3):
            x.normal_()
            for one in (sums, most, twice):
                one.fill_(7e20)
            for one in others:
                one.zero_()
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(sums, x.sum(0), rtol=1e-3, atol=1e-2)
            torch.testing.assert_close(twice, 2 * x.sum(0), rtol=1e-3, atol=1e-2)
            assert torch.equal(most, x.amax(0))
            assert torch.equal(others[3], torch.full_like(others[3], 1.1))
            assert torch.equal(others[4], torch.full_like(others[4], 4886718345))


def test_threads(kernel: Any, device: Any) -> None:
    wrong: list[BaseException] = []

    def run() -> None:
        stream = torch.cuda.Stream(device)
        try:
            with torch.cuda.device(device), torch.cuda.stream(stream):
                x = torch.randn(SHAPE, device=device)
                for _ in range(20):
                    assert right(kernel, x)
        except BaseException as error:  # noqa: BLE001 - told below
            wrong.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_another_device_is_current(kernel: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.randn(SHAPE, device="cuda:1")
    with torch.cuda.device(0):
        assert right(kernel, x)
        assert torch.cuda.current_device() == 0
