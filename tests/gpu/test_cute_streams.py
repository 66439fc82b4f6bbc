"""Ops of CuTe host functions that take no stream: side streams, graphs, devices, threads.

`KBUILD_TEST_CUTE=FOLDER` is a variant of the project `cute_streams` beside this file, which needs
no GPU to be built: `kbuild build --variant torch-stable-abi211-cu130-x86_64-linux`.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.gpu.built import package

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
SIZE = (1 << 20) + 5


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return package("KBUILD_TEST_CUTE", "cute_streams", tmp_path_factory.mktemp("cute_streams"))


@pytest.fixture(params=["no_stream", "forgotten"])
def op(kernel: Any, request: pytest.FixtureRequest) -> Any:
    return getattr(kernel, request.param)


def late(op: Any, device: Any, value: float) -> Any:
    """What the op makes of a tensor that the current stream fills when all others are done."""
    x = torch.zeros(SIZE, device=device)
    torch.cuda.current_stream(device).synchronize()
    torch.cuda._sleep(50_000_000)
    x += value
    return op(x)


def check(out: Any, value: float) -> None:
    assert torch.equal(out, torch.full_like(out, 2 * (value + 1)))


def test_a_side_stream(op: Any, device: Any) -> None:
    for round_ in range(5):
        stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            out = late(op, device, round_)
        stream.synchronize()
        check(out, round_)


def test_the_default_stream(op: Any, device: Any) -> None:
    with torch.cuda.device(device):
        check(late(op, device, 3.0), 3.0)


def test_another_device_is_current(op: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    stream = torch.cuda.Stream("cuda:1")
    x = torch.full((SIZE,), 4.0, device="cuda:1")
    torch.cuda.synchronize("cuda:1")
    with torch.cuda.stream(stream), torch.cuda.device(0):
        out = op(x)
    stream.synchronize()
    assert torch.cuda.current_device() == 0
    check(out, 4.0)


def test_a_graph(op: Any, device: Any) -> None:
    with torch.cuda.device(device):
        check(op(torch.ones(SIZE, device=device)), 1.0)
        x = torch.zeros(SIZE, device=device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            out = op(x)
        for value in (1.0, 5.0, -2.0):
            x.fill_(value)
            out.fill_(77)
            graph.replay()
            torch.cuda.synchronize()
            check(out, value)


def test_threads(op: Any, device: Any) -> None:
    """Each has a stream of its own, and meets the others in between."""
    wrong: list[float] = []
    ready = threading.Barrier(4)

    def run(value: float) -> None:
        stream = torch.cuda.Stream(device)
        with torch.cuda.device(device), torch.cuda.stream(stream):
            for _ in range(5):
                ready.wait()
                out = late(op, device, value)
                stream.synchronize()
                if not torch.equal(out, torch.full_like(out, 2 * (value + 1))):
                    wrong.append(value)

    threads = [threading.Thread(target=run, args=(float(value),)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
