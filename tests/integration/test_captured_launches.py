"""Launches of an author's Python from a recording to a package without Triton. Fetches 286 MB."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, CommandProject, write_files
from tests.support.dsl.projects import VARIANT, loaded
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.torch,
    pytest.mark.usefixtures("need_torch"),
]
AUTHOR = ROOT / "tests" / "gpu" / "captured" / "captured_ops"
BUILD = """\
[general]
name = "adder"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.ops]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["captured_ops/**/*.py"]
cuda-capabilities = ["8.0"]

[[kernel.ops.capture]]
launches = ["captured_ops.*"]
"""
PACKAGE = """\
from .captured_ops.loss import cross_entropy, loss_kernel
from .captured_ops.pointwise import scale
"""
TEST = """
import torch
from captured_ops.loss import cross_entropy
from captured_ops.pointwise import scale


def test_loss():
    x, label = torch.randn(6, 100), torch.tensor([0, 5, -100, 7, 99, 3])
    want = torch.nn.functional.cross_entropy(x, label)
    torch.testing.assert_close(cross_entropy(x, label), want, atol=1e-4, rtol=1e-4)
    cross_entropy(x, label, torch.ones(100), reduction="none")


def test_scale():
    for dtype in (torch.float16, torch.float32):
        for n in (3000, 4096):
            x = torch.randn(n).to(dtype)
            torch.testing.assert_close(scale(x, 2.0), x * 2)
"""
USED = """
import importlib.machinery
assert "triton" not in sys.modules
sys.modules["triton"] = None  # if this interpreter has one
x = torch.empty(4096, device="meta", dtype=torch.float16)
assert kernel.scale(x, 2.0).shape == (4096,)
rows = torch.empty(6, 100, device="meta")
label, loss = torch.empty(6, device="meta", dtype=torch.int64), torch.empty(6, device="meta")
launch = kernel.loss_kernel[(6,)]
launch(rows, label, None, loss, 100, 100, -100, 6, 0.0, BLOCK=128, REDUCTION="mean", num_warps=4)
for refused in (
    lambda: kernel.scale(x.double(), 2.0),
    lambda: kernel.cross_entropy(torch.zeros(2, 5000), torch.zeros(2, dtype=torch.int64)),
    lambda: kernel.cross_entropy(torch.zeros(2, 100), torch.zeros(2, dtype=torch.int64)),
):
    try:
        refused()
    except Exception as error:
        print(type(error).__name__, str(error).replace("\\n", " ")[:2000])
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dsl_store("triton-3.9.0", "triton", tmp_path_factory)


@pytest.fixture(scope="module")
def bench(store: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandProject:
    folder = tmp_path_factory.mktemp("captured")
    root = folder / "project"
    files = {
        "build.toml": BUILD,
        "torch-ext/adder/__init__.py": PACKAGE,
        "tests/test_ops.py": TEST,
        ".gitignore": "build/\n.kbuild/\n__pycache__/\n",
        "captured_ops/__init__.py": "",
        **{
            f"captured_ops/{name}": (AUTHOR / name).read_text()
            for name in ("loss.py", "pointwise.py", "settings.py")
        },
    }
    write_files(root, files)
    bench = CommandProject(root, cache_with_store(folder / "cache", store))
    bench.commit()
    return bench


def triton_of(bench: CommandProject) -> Path:
    """An installed Triton, which the build fetches if need be."""
    roots = sorted((bench.cache / "store").glob("triton-3.9.0-*/root"))
    if not roots:
        shutil.copy(AUTHOR.parent / "captured" / "ops.json", bench.root / "captured" / "ops.json")
        bench.run("build", "--variant", VARIANT)
        roots = sorted((bench.cache / "store").glob("triton-3.9.0-*/root"))
    return roots[0]


@pytest.mark.quick
def test_from_a_recording_to_a_package_without_triton(bench: CommandProject) -> None:
    pytest.importorskip("numpy")  # Triton's interpreter
    path = {"PYTHONPATH": f"{ROOT}:{triton_of(bench)}:{bench.root}", "TRITON_INTERPRET": "1"}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    bench.kbuild("capture", "--record", "--", *command, env=path)
    captured = json.loads((bench.root / "captured" / "ops.json").read_text())
    launches = {each["function"]: each["launches"] for each in captured["functions"]}
    assert {name: len(each) for name, each in launches.items()} == {
        "loss_kernel": 2,
        "scale_kernel": 2,
    }
    assert launches["scale_kernel"][0]["assumptions"] == [{}, {"divisible": ["n"]}]
    bench.kbuild("capture", "--check")
    bench.git("add", "-A")
    bench.git("commit", "-qm", "recorded")
    bench.built("--variant", VARIANT)
    folder = bench.root / "build" / VARIANT
    source = (folder / "_captured_sources" / "captured_ops" / "loss.py").read_text()
    assert source == (AUTHOR / "loss.py").read_text()
    double, long, cpu = bench.python(loaded(str(folder), USED)).splitlines()[-3:]
    assert "`scale_kernel` (captured_ops/pointwise.py:" in double
    assert "x_ptr: float64" in double
    assert "BLOCK: 8192" in long
    assert "kbuild capture --record" in long
    assert "'CPU' backend" in cpu
