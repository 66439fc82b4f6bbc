"""`kbuild capture` of launches of cuTile kernels: those of `tests/gpu/captured_cutile`."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.checks.readers.device_code import read_device_code
from kbuild.system.errors import CheckError
from tests.support.capture_worker import Captures, captures
from tests.support.command_project import CommandProject
from tests.support.stores import cache_with_store, dsl_store, warm_cache

pytestmark = [
    pytest.mark.full,
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
PROJECT = Path(__file__).parents[1] / "gpu" / "captured_cutile"
VARIANT = "torch-stable-abi211-cu130-x86_64-linux"
MATRIX = {"x": {"shape": ["M", "N"], "dtypes": ["float32"]}}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where cuTile is installed, once for all tests."""
    return dsl_store("cutile-1.7.0", "cuda-tile", tmp_path_factory)


@pytest.fixture(scope="module")
def captured(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captures]:
    root = tmp_path_factory.mktemp("cutile")
    shutil.copy(PROJECT / "cutile_ops" / "kernels.py", root / "kernels.py")
    section = {
        "language": "cutile", "toolchain": ["cuda-tile==1.7.0"], "src": ["kernels.py"],
        "cuda-capabilities": ["9.0"],
    }  # fmt: skip
    cache = cache_with_store(tmp_path_factory.mktemp("cache"), store)
    with captures(root, section, cache) as found:
        yield found


def test_arrays_are_passed_with_their_layouts(captured: Captures) -> None:
    """A view has its own sizes, strides and first element; what is dense has no strides to check.

    The number of rows is a constant that the kernel has no use for: one image is for all of them.
    """
    section = captured("kernels:halves_transposed", MATRIX)[0].forward.section
    first, second = section["launch"]
    assert first["args"] == {"x": "x_1", "out": "out_1"}
    assert (first["constants"], first["ones"]) == ({"ROWS": 0, "B": 32}, ["x.stride.0"])
    assert first["divisible"] == ["x.shape.1", "x.stride.1", "out.shape.1"]
    assert first["grid"] == ["cdiv(min(N, N // 2), 32)", "cdiv(M, 32)"]
    right, below = (section["views"][second["args"][name]] for name in ("x", "out"))
    assert right["strides"] == ["stride(x, 1)", "stride(x, 0)"]
    assert right["offset"] == "min(N, N // 2) * stride(x, 1)"
    assert "strides" not in below


def test_any_number_of_batch_dimensions(captured: Captures) -> None:
    """The kernel's array has two dimensions; hints of `replace_hints` are those of candidates."""
    x = {"x": {"shape": ["...", "N"], "dtypes": ["float32"]}}
    section = captured("kernels:softmax", x, {"N": (1, 4096)})[0].forward.section
    launch = section["launch"][-1]
    assert section["views"][launch["args"]["x"]]["shape"] == ["rows", "N"]
    assert launch["constants"]["BLOCK"]["value"] == "next_pow2(N)"
    assert launch["configs"] == [{"occupancy": 2, "when": "N > 2048"}, {"when": "N <= 2048"}]


def test_arguments_in_place(captured: Captures) -> None:
    vector = {"shape": ["N"], "dtypes": ["float32"]}
    arguments = {"x": vector, "y": vector, "scale": {"kind": "float", "example": 1.0}}
    wrapper, _ = captured("kernels:add_", arguments)
    assert wrapper.forward.section["schema"].startswith(
        "f(Tensor(a!) x, Tensor y, float scale=1.0)"
    )
    (launch,) = wrapper.forward.section["launch"]
    assert launch["function"] == "scaled_add_kernel"
    assert launch["args"] == {"x": "x", "y": "y", "out": "x", "scale": "scale"}


def test_gradients(captured: Captures) -> None:
    arguments = {
        "x": {"shape": ["...", 1000], "dtypes": ["bfloat16"]},
        "weight": {"shape": [1000], "dtypes": "x"},
        "eps": {"kind": "float", "example": 1e-6},
    }
    wrapper, _ = captured("kernels:RMSNorm", arguments, backward=True)
    assert wrapper.backward is not None
    forward, backward = wrapper.forward.section["launch"][-1], wrapper.backward.section["launch"]
    assert forward["constants"] == {"N": 1000, "BLOCK": 1024}
    assert forward["args"]["eps"] == "eps"
    assert "rms_norm_backward_kernel" in {launch.get("function") for launch in backward}


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("tuned", {"x": {"shape": ["N"], "dtypes": ["float32"]}}, "measures a kernel"),
        ("unnamed", MATRIX, "which has no name in its module: define it there"),
        ("listed", MATRIX, "passes a list as `x` of `copy_kernel`: pass each item"),
        ("on_stream_0", MATRIX, "on a stream of its own: pass `torch.cuda.current_stream()`"),
        ("row_sums", MATRIX, "has more values of `N` in `row_sums_kernel` than there can be"),
    ],
)
def test_refusals_are_at_the_line(
    captured: Captures, function: str, arguments: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(CheckError) as refused:
        captured(f"kernels:{function}", arguments)
    assert re.match(r"kernels\.py:\d+: ", refused.value.message)
    assert words in refused.value.message


@pytest.mark.compile
def test_what_is_captured_is_built(
    store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    left = shutil.ignore_patterns("build", ".kbuild", "captured", "__pycache__")
    shutil.copytree(PROJECT, tmp_path / "project", ignore=left)
    cache = warm_cache(tmp_path / "cache", store, tmp_path_factory)
    made = CommandProject(tmp_path / "project", cache)
    file = made.root / "build.toml"
    head, *tables = re.split(r"(?=\[\[kernel\.ops\.capture)", file.read_text())
    names = ("halves_transposed", "RMSNorm")
    chosen = [table for table in tables if any(f":{name}" in table for name in names)]
    # A size that is a number, and divisible by 16 in every call, besides one that is in some calls.
    text = head + "".join(chosen).replace('["...", 1000]', '["M", 1008]').replace("1000", "1008")
    text = text.replace('["float32", "bfloat16"]', '["bfloat16"]')
    file.write_text(text)
    (made.root / "torch-ext" / "captured_cutile" / "__init__.py").write_text(
        "from ._captured import halves_transposed, rms_norm\n"
    )
    made.kbuild("capture")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "cutile")):
        made.git(*arguments)
    made.built("--variant", VARIANT, "--arch", "9.0")
    (extension,) = (made.root / "build" / VARIANT).glob("*.abi3.so")
    assert {image.arch for image in read_device_code(extension).images} == {"9.0a"}
