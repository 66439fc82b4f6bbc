"""What `examples/gemm-fp8-cute` does without a GPU: rounding, and the reference of its tuning."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gemm-fp8-cute"


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reference():
    return loaded("fp8_reference", EXAMPLE / "gemm_fp8_cute" / "reference.py")


@pytest.fixture
def package(monkeypatch, reference):
    """The Python package, whose op is the reference."""
    ops = ModuleType("fp8_package._ops")
    ops.ops = SimpleNamespace(gemm=reference.gemm)
    monkeypatch.setitem(sys.modules, "fp8_package._ops", ops)
    return loaded("fp8_package", EXAMPLE / "torch-ext" / "gemm_fp8_cute" / "__init__.py")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 130, 128), (200, 300, 500)], ids=str)
def test_a_product_of_rounded_matrices(package, shape):
    m, n, k = shape
    generator = torch.Generator().manual_seed(0)
    # Blocks differ by orders of magnitude: one scale for all would lose the small ones.
    a = torch.randn(m, k, generator=generator) * torch.logspace(-3, 3, m)[:, None]
    b = torch.randn(n, k, generator=generator)
    left, right = package.quantize(a), package.quantize(b, rows=128)
    assert left[1].shape == (m, -(-k // 128))
    assert right[1].shape == (-(-n // 128), -(-k // 128))
    out = package.gemm(left[0], right[0], left[1], right[1])
    expected = a @ b.t()
    error = (out.float() - expected).norm(dim=1) / (a.norm(dim=1) * b.norm() / k**0.5)
    assert float(error.max()) < 0.1


def test_zeros_are_zeros(package):
    rounded, scales = package.quantize(torch.zeros(2, 200))
    assert not rounded.float().any()
    assert bool((scales > 0).all())


@pytest.mark.parametrize("shape", [(0, 16, 16), (16, 0, 16), (16, 16, 0)], ids=str)
def test_empty(package, shape):
    m, n, k = shape
    left = (
        package.quantize(torch.zeros(m, k)) if m and k else (torch.zeros(m, k), torch.zeros(m, 1))
    )
    right = torch.zeros(n, k)
    out = package.gemm(left[0], right, left[1][:, : -(-k // 128)], torch.zeros(-(-n // 128), 1))
    assert out.shape == (m, n)
    assert not out.any()


def test_the_inputs_of_tuning(reference):
    sizes = {"M": 3, "N": 130, "K": 260}
    made = reference.inputs(sizes, {}, "cpu")
    assert made["scales_a"].shape == (3, 3)
    assert made["scales_b"].shape == (2, 3)
    ones = torch.ones(3, 260), torch.ones(130, 260)
    out = reference.gemm(*ones, **made).float()
    each = made["scales_a"][:, None, :] * made["scales_b"].repeat_interleave(128, 0)[None, :130]
    expected = (each * torch.tensor([128.0, 128.0, 4.0])).sum(-1)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=0.0)
