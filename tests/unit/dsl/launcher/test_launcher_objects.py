"""Objects that are linked instead of loaded: real ones, compiled from C, which work on the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.dsl.launcher.files import launcher_files
from kbuild.system.files import FileSet
from tests.support.launcher.functions import Functions, library
from tests.support.launcher.launched import Driver, extension
from tests.support.launcher.linked_objects import STREAM, linked_ops

pytestmark = [pytest.mark.compile, pytest.mark.torch]


@pytest.fixture(scope="module")
def linked(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("objects")
    made = linked_ops(folder)
    files = launcher_files("cute", made["cute"], module=True).merge(
        launcher_files("plain", made["plain"], module=False)
    )
    objects = [str(folder / path) for path, _ in files.items() if path.endswith(".o")]
    exports = folder / "exports.map"
    exports.write_text("{ global: *; local: _Z*; *kbuild_aot_*; };\n")
    flags = (f"-Wl,--version-script={exports}", *objects)
    path = extension(files, folder, "_objects_tests", *flags)
    torch.ops.load_library(str(path))
    return SimpleNamespace(ops=torch.ops._objects_tests, path=path, files=files, made=made)


@pytest.fixture(scope="module")
def functions(linked: Any, tmp_path_factory: pytest.TempPathFactory) -> Functions:
    """The same objects behind functions of TVM-FFI."""
    files = FileSet({})
    for name, ops in linked.made.items():
        files = files.merge(launcher_files(name, ops, module=False, framework="tvm-ffi"))
    path = library(files, tmp_path_factory.mktemp("objects-tvm-ffi"), "objects")
    return Functions(path, [op.spec for ops in linked.made.values() for op in ops])


@pytest.fixture
def ops(host: str, linked: Any, driver: Driver, request: pytest.FixtureRequest) -> Iterator[Any]:
    found = linked.ops if host == "torch" else request.getfixturevalue("functions")
    driver.use_stream(0, STREAM)
    yield found
    driver.use_stream(0, 0)
    driver.library.fake_forget()


def torch_() -> Any:
    import torch

    return torch


def test_arguments_reach_the_object(ops):
    x = torch_().arange(24.0).reshape(2, 3, 4)
    out = ops.scale(x, 0.5, 7, True)
    assert out.shape == x.shape
    torch_().testing.assert_close(out, x * 0.5 + 7 + 100 + 1000)


def test_unaligned_tensors_take_the_plain_object(ops):
    x = torch_().arange(25.0)[1:]
    torch_().testing.assert_close(ops.scale(x, 2.0, -3), x * 2 - 3)


def test_an_empty_grid_launches_nothing(ops):
    assert ops.scale(torch_().empty(0, 5)).shape == (0, 5)


def test_other_tensors_are_refused_before_the_call(ops):
    with pytest.raises(RuntimeError, match="must be contiguous"):
        ops.scale(torch_().zeros(4, 4).t())
    with pytest.raises(RuntimeError, match="float64"):
        ops.scale(torch_().zeros(4, dtype=torch_().float64))
    with pytest.raises(RuntimeError, match="does not fit i32"):
        ops.scale(torch_().zeros(4), 1.0, 2**31)


@pytest.mark.parametrize(
    ("columns", "step", "begin", "fast"),
    [(16, 32, 0, True), (15, 32, 0, False), (16, 33, 0, False), (16, 32, 1, False)],
)
def test_sizes_and_strides_decide_between_objects(ops, columns, step, begin, fast):
    whole, out = torch_().randn(4, 64), torch_().zeros(4, columns)
    x = whole.flatten().as_strided((3, columns), (step, 1), begin)
    ops.rows(x, out[:3])
    pair = columns + 1  # its last number
    torch_().testing.assert_close(out[:3], x + pair + 1000 * fast)


def test_a_stride_that_is_not_one_takes_the_plain_object(ops):
    x, out = torch_().randn(32, 64)[:, ::2], torch_().zeros(32, 32)
    ops.rows(x, out)
    torch_().testing.assert_close(out, x + 33)


def test_what_is_none_is_no_argument(ops):
    x = torch_().ones(32)
    torch_().testing.assert_close(ops.maybe(x), x + 6000)
    torch_().testing.assert_close(ops.maybe(x, x), x + 1000)


def test_failures_are_told(ops):
    with pytest.raises(RuntimeError, match=r"`fails`.*it is meant to.*nvidia-cutlass-dsl 4\.8\.1"):
        ops.fails(torch_().ones(4))
    with pytest.raises(RuntimeError, match=r"the CUDA runtime fails \(error 700\)"):
        ops.fails_in_cuda(torch_().ones(4))


def test_the_stream_is_torchs(ops, driver):
    driver.use_stream(0, 0x99)
    with pytest.raises(RuntimeError, match="it is on another stream"):
        ops.scale(torch_().ones(4))


def test_no_image_for_the_device(ops, driver):
    x = torch_().ones(64)
    driver.place(x, 4)
    with pytest.raises(RuntimeError, match="no image for sm_100; there are images for sm_80 and"):
        ops.scale(x)


def test_functions_of_c(ops):
    x = torch_().arange(8.0)
    out = ops.scale_c(x, 8, 3 << 32, 0.5, 0.25, True)
    torch_().testing.assert_close(out, x * 0.5 + 0.25 + 3 + 100 + 2000)
    with pytest.raises(RuntimeError, match="`scale_c`: `scale_c`: n is negative"):
        ops.scale_c(x, -1, 0, 1.0, 0.0, False)


class TestLoading:
    """For the device of a call, and for no other."""

    def events(self, driver, device):
        said = driver.said()
        assert not [line for line in said if " on " in line and not line.endswith(f" on {device}")]
        return [line for line in said if line.endswith(f" on {device}")]

    @pytest.mark.parametrize(("op", "event"), [("scale", "ready"), ("scale_c", "load of c")])
    def test_with_the_first_call_for_each_device(self, ops, driver, op, event):
        more = (8, 0, 1.0, 0.0, False) if op == "scale_c" else ()
        for device in (9, 17):
            driver.use_stream(device, STREAM)
            x = torch_().ones(8)
            driver.place(x, device)
            driver.said()
            getattr(ops, op)(x, *more)
            assert self.events(driver, device) == [f"{event} on {device}"]
            getattr(ops, op)(x, *more)
            assert self.events(driver, device) == []

    def test_preloading(self, host, ops, driver):
        """Everything that calls on the device may need, before a graph is captured."""
        driver.said()
        ops._kbuild_preload()
        events = self.events(driver, 0)
        assert set(events) <= {"ready on 0", "load of c on 0"}
        ops._kbuild_preload()
        ops.scale(torch_().ones(8))
        ops.maybe(torch_().ones(7), torch_().ones(7))
        ops.scale_c(torch_().ones(8), 8, 0, 1.0, 0.0, False)
        assert self.events(driver, 0) == []

    def test_a_device_that_the_code_does_not_fit(self, ops, driver):
        """It fails there, and nowhere else."""
        x = torch_().ones(8)
        driver.place(x, 8)
        words = "cannot load the code for sm_90a on device 8 \\(sm_90\\): "
        for _ in range(2):
            with pytest.raises(RuntimeError, match=words + "the CUDA runtime fails .error 209."):
                ops.scale(x)
            with pytest.raises(RuntimeError, match=words + "it does not fit"):
                ops.scale_c(x, 8, 0, 1.0, 0.0, False)
        ops.scale(torch_().ones(8))


def test_nothing_of_the_objects_is_exported(host, linked, request):
    path = linked.path if host == "torch" else request.getfixturevalue("functions").path
    done = subprocess.run(  # noqa: TID251
        ("nm", "-D", "--defined-only", str(path)), capture_output=True, text=True, check=True
    )
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    assert [n for n in names if "kbuild_aot" in n or "TVMFFI" in n or "CuteDSL" in n] == []
