"""A launcher on a real GPU: streams, graphs, threads, several devices.

Images come from `KBUILD_TEST_IMAGES=FOLDER` (see `launcher_images.py`) or from nvcc. Where there is
no C++ compiler either, `launcher_section.py` builds the extensions elsewhere: for Torch
`KBUILD_TEST_LAUNCHER=FILE.so`, for TVM-FFI `KBUILD_TEST_FUNCTIONS=FILE.so`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.launcher_images import ARCHS, make
from tests.gpu.launcher_section import NAME, files, specs
from tests.support.launcher.functions import (
    CUDA,
    Caller,
    Functions,
    library,
    packed_tensor,
    use_stream,
)

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.fixture(scope="module", params=["torch", "tvm-ffi"])
def ops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The ops, built here unless they were built elsewhere."""
    folder = tmp_path_factory.mktemp("launcher")
    if request.param == "tvm-ffi":
        return _functions(folder)
    built = os.environ.get("KBUILD_TEST_LAUNCHER")
    torch.ops.load_library(str(Path(built) if built else _extension(folder)))
    return getattr(torch.ops, NAME)


def _functions(folder: Path) -> Functions:
    """Those of TVM-FFI, called as Torch's ops are."""
    pytest.importorskip("tvm_ffi")
    built = os.environ.get("KBUILD_TEST_FUNCTIONS")
    if built:
        return Functions(Path(built), specs())
    made = library(files(_images(folder), "tvm-ffi"), folder, NAME, tested=False)
    return Functions(made, specs())


def _images(folder: Path) -> Path:
    given = os.environ.get("KBUILD_TEST_IMAGES")
    images = Path(given) if given else folder / "images"
    if not given:
        if shutil.which("nvcc") is None:
            pytest.skip("neither nvcc nor KBUILD_TEST_IMAGES")
        make(images, ARCHS)
    if shutil.which("g++") is None:
        pytest.skip("no g++; build elsewhere, see above")
    return images


def _extension(folder: Path) -> Path:
    from tests.gpu.launcher_section import command

    files(_images(folder)).write(folder, manifest=False)
    subprocess.run(command(folder, Path(torch.__file__).parent), check=True)  # noqa: TID251
    return folder / f"{NAME}.so"


@pytest.mark.parametrize("size", [0, 1, 3, 1000, 1024, 1025, 4096, 2**20, 2**20 + 3])
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_add(ops: Any, device: Any, size: int, offset: int) -> None:
    x, y = (torch.randn(size + offset, device=device)[offset:] for _ in range(2))
    assert torch.equal(ops.add(x, y), x + y)


@pytest.mark.parametrize("negate", [False, True])
def test_scale(ops: Any, device: Any, negate: bool) -> None:
    """80 KiB of shared memory and scratch memory."""
    x = torch.randn(1000, device=device)
    expected = x * (-2.5 if negate else 2.5)
    ops.scale_(x, 2.5, negate)
    assert torch.equal(x, expected)


def test_sum(ops: Any, device: Any) -> None:
    x = torch.randn(100_000, device=device)
    torch.testing.assert_close(ops.total(x)[0], x.sum(), rtol=1e-3, atol=1e-2)


def test_another_device_is_current(ops: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x = torch.randn(100, device="cuda:1")
    with torch.cuda.device(0):
        assert torch.equal(ops.add(x, x), x * 2)
        assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="`y` is on device 0, `x` on device 1"):
        ops.add(x, x.to("cuda:0"))


def test_a_side_stream(ops: Any, device: Any) -> None:
    """It waits for what the stream does before, and nothing else."""
    stream = torch.cuda.Stream(device)
    x = torch.zeros(1 << 20, device=device)
    torch.cuda.synchronize(device)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x += 1
        y = ops.add(x, x)
    stream.synchronize()
    assert torch.equal(y, torch.full_like(y, 2))


def test_a_graph(ops: Any, device: Any) -> None:
    with torch.cuda.device(device):
        ops._kbuild_preload(*([device.index] if isinstance(ops, Functions) else []))
        x = torch.randn(5000, device=device)
        graph = torch.cuda.CUDAGraph()
        # Torch's own stream for captures belongs to the device of the first graph.
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            y = ops.add(x, x)
            ops.scale_(y, 0.5, False)
            total = ops.total(y)
        for _ in range(3):
            x.normal_()
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(y, x)
            torch.testing.assert_close(total[0], x.sum(), rtol=1e-3, atol=1e-2)


def test_without_torchs_allocator(ops: Any, device: Any) -> None:
    """As another framework calls: memory for a call is the driver's, on the stream it names."""
    if not isinstance(ops, Functions):
        pytest.skip("Torch has its allocator")
    call, stream = Caller(ops.path), torch.cuda.Stream(device)
    x, out = torch.randn(100_000, device=device), torch.zeros(1, device=device)
    small = torch.randn(1000, device=device)
    expected = (x.sum(), small * 3)
    torch.cuda.synchronize(device)
    told = [_told(one) for one in (x, out, small)]
    use_stream(device.index, stream.cuda_stream)
    try:
        for _ in range(3):
            call("total", told[0], told[1])
        call("scale_", told[2], 3.0, False)
    finally:
        use_stream(device.index, 0)
    stream.synchronize()
    torch.testing.assert_close(out[0], expected[0], rtol=1e-3, atol=1e-2)
    assert torch.equal(small, expected[1])


def _told(tensor: Any) -> Any:
    kind = {"device_type": CUDA, "device": tensor.device.index}
    return packed_tensor(tensor.data_ptr(), tuple(tensor.shape), **kind)


def test_threads(ops: Any) -> None:
    x = torch.randn(4096, device="cuda")
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(at for at in range(200) if not torch.equal(ops.add(x, x), x * 2))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_refused(ops: Any) -> None:
    x = torch.randn(8, device="cuda")
    with pytest.raises(RuntimeError, match="`y` is on the CPU; the op takes CUDA tensors"):
        ops.add(x, x.cpu())
    with pytest.raises(RuntimeError, match="`x` is float64; it takes float32"):
        ops.add(x.double(), x.double())
