"""Torch's own tools on a launcher's ops: `torch.compile`, `opcheck`, the fallback."""

from __future__ import annotations

import pytest

from kbuild.ops.fake_kernels import fake_source
from tests.support.launcher.launched import only_line
from tests.support.launcher.rich import rich

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]


@pytest.fixture
def host():
    return "torch"


@pytest.fixture(scope="module")
def faked(loaded):
    """The ops with their fake kernels."""
    names = {"torch": torch}
    for op in rich():
        register = f"torch.library.register_fake('_rich_tests::{op.spec.name}')"
        exec(fake_source(op.spec, register), names)  # noqa: S102 - what kbuild writes
    return loaded.ops


def test_schemas(ops):
    assert str(ops.norm.default._schema) == (
        "_rich_tests::norm(Tensor x, Tensor w, Tensor? b=None, float eps=9.9999999999999995e-07)"
        " -> Tensor"
    )
    assert ops.scale_.default._schema.is_mutable


def test_compile(faked, driver):
    """One graph for all sizes, no break."""
    driver.said()
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def model(x, y, a, splits):
        faked.scale_(a)
        return faked.add(x, y) * 1, faked.split(a.bfloat16().reshape(-1, 8), splits)[0]

    for rows in (3, 5, 8):
        x = torch.ones(rows, 6)
        sum_, split = model(x, x, torch.zeros(rows * 16), 2)
        assert (sum_.shape, split.shape) == ((rows, 6), (rows * 2,))
    assert len(graphs) == 1
    assert len(driver.launches()) == 12


@pytest.mark.parametrize("bias", [False, True])
def test_opcheck(faked, bias):
    """Results are whatever the memory held, so nothing that compares values."""
    x, w = torch.zeros(4, 64).half(), torch.zeros(64).half()
    arguments = (x, w, w.clone() if bias else None)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(faked.norm.default, arguments, {"eps": 0.1}, test_utils=checks)


def test_fallback(ops, driver):
    """Where nothing fits, an op that Python registers gets the same arguments."""
    seen = []
    with torch.library._scoped_library("_rich_tests", "FRAGMENT") as library:
        library.define("_late_jit(Tensor x, Tensor? b, float s, bool f) -> Tensor")

        def late(x, b, s, f):
            seen.append((b, s, f))
            return x + 1

        library.impl("_late_jit", late, "CPU")
        x = torch.zeros(20)
        assert torch.equal(ops.late(x, None, 0.5), x + 1)
        assert torch.equal(ops.late(x, x, 0.25, False), x + 1)
        assert seen[0] == (None, 0.5, True)
        assert seen[1][0].data_ptr() == x.data_ptr()
        assert seen[1][1:] == (0.25, False)
        assert driver.launches() == []
        seen.clear()
        assert x._use_count() == 1
        ops.late(torch.zeros(4), None, 0.5)
        assert seen == []
        assert only_line(driver).startswith("launch sm_90a BLOCK=1 ")
        driver.place(x, 1)
        assert torch.equal(ops.late(x[:4], None, 0.5), x[:4] + 1)
        assert len(seen) == 1
