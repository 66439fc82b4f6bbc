"""`kbuild capture` of kernels that Helion writes: those of `tests/gpu/captured_helion`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.dsl.aot_build import build_aot_kernels
from kbuild.ops.section import read_section
from kbuild.ops.tuned_tables import TunedRow, TunedTable, write_table
from kbuild.plugins.capture.description import kernels_file
from kbuild.plugins.capture.wrappers import CapturedWrapper, captured_kernel
from kbuild.system.errors import CheckError
from tests.support.capture_worker import Captures, captures
from tests.support.dsl.compiled import dsl_compiler
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.full,  # Helion takes 20 s to be imported
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
SOURCE = Path(__file__).parents[1] / "gpu" / "captured_helion" / "helion_ops" / "kernels.py"
PINS = ["helion==1.5.1", "triton==3.9.0"]
SECTION = {
    "language": "helion", "toolchain": PINS, "src": ["kernels.py"], "backend": ["cuda"],
    "cuda-capabilities": ["8.0", "9.0"],
}  # fmt: skip
SAVED = '{"block_sizes": [1], "reduction_loops": [256], "num_warps": 4}'
# Indices of such tensors have 32 bits: there is no second kernel for larger ones.
SIZES = {"M": (1, 1 << 18), "N": (1, 4096)}
MATRIX = {"shape": ["M", "N"], "dtypes": ["bfloat16"]}
INTERPRETED = """
import json, sys
import torch
import kernels

launch = json.load(sys.stdin)
kernel = getattr(kernels, launch["function"]).fn
torch.manual_seed(0)
x, y = torch.randn(70, 72), torch.randn(72, 136)
for config in range(3):
    out = torch.zeros(70, 136)
    names = {
        "x": x, "y": y, "out": out, "M": 70, "K": 72, "N": 136, "config": config,
        "stride": torch.Tensor.stride, "sm_count": lambda: 4, "cdiv": lambda a, b: -(-a // b),
    }
    values = {name: eval(str(text), names) for name, text in launch["args"].items()}
    kernel[(eval(launch["grid"][0], names), 1, 1)](**values, config=config)
    print(float((out - x @ y).abs().max()))
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captures]:
    store = dsl_store("helion-1.5.1", "helion", tmp_path_factory)
    root = tmp_path_factory.mktemp("helion")
    shutil.copy(SOURCE, root / "kernels.py")
    (root / "helion_configs").mkdir()
    (root / "helion_configs" / "row_sums.h200.json").write_text(SAVED)
    source = SOURCE.read_text()
    function = source[source.index("@helion.kernel", source.index("def cross_entropy")) :]
    function = function[: function.index("\n\n\n") + 1]
    fields = {"kernel_source_hash": hashlib.sha256(function.encode()).hexdigest()}
    entry = {"config": SAVED.replace("256", "512"), "key": {"fields": fields}}
    (root / "helion_configs" / "0123.best_config").write_text(json.dumps(entry))
    cache = cache_with_store(tmp_path_factory.mktemp("cache"), store)
    with captures(root, SECTION, cache) as found:
        yield found


@pytest.fixture(scope="module")
def on_hopper(captured: Captures) -> Captures:
    """The same worker, for kernels of one arch: code is written for each."""
    section = {**SECTION, "cuda-capabilities": ["9.0"]}
    return replace(captured, section=read_section("k", section))


@pytest.fixture(scope="module")
def matmul(on_hopper: Captures) -> CapturedWrapper:
    arguments = {
        "x": {"shape": ["M", "K"], "dtypes": ["float32"]},
        "y": {"shape": ["K", "N"], "dtypes": "x"},
    }
    wrapper, notes = on_hopper("kernels:matmul", arguments)
    assert notes == ()
    return wrapper


def test_configs_are_candidates(matmul: CapturedWrapper) -> None:
    wrapper = matmul
    section = wrapper.forward.section
    small, *others = section["launch"]
    assert small["configs"] == "autotune"
    assert "config == 1" in small["grid"][0]
    assert "sm_count()" in small["grid"][0]
    assert small["args"]["x_stride_1"] == "stride(x, 1)"
    assert any("N * K > 2147483647" in other["when"] for other in others)
    assert wrapper.kernels.count('triton.Config({"config": ') == 3 * len(section["launch"])
    assert {*re.findall(r"^(?:import|from) (\w+)", wrapper.kernels, re.MULTILINE)} == {"triton"}


def test_every_candidate_computes_the_product(
    matmul: CapturedWrapper, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In Triton's interpreter, without Helion, on the CPU, for sizes that no block divides."""
    (tmp_path / "kernels.py").write_text(matmul.kernels)
    store = dsl_store("triton-3.9.0", "triton", tmp_path_factory)
    folders = [tmp_path, *sorted(store.glob("triton-3.9.0-*/root"))[:1], *sys.path]
    done = subprocess.run(  # noqa: TID251 - a process with Triton
        (sys.executable, "-c", INTERPRETED),
        input=json.dumps(matmul.forward.section["launch"][0]),
        env={"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    differences = [float(line) for line in done.stdout.split()]
    assert len(differences) == 3
    assert max(differences) < 1e-4


def test_a_tuned_table_names_a_config(
    matmul: CapturedWrapper, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is compiled beside the first one, and calls of the sizes in its row choose it."""
    store = dsl_store("triton-3.9.0", "triton", tmp_path_factory)
    cache = cache_with_store(tmp_path / "cache", store)
    file = tmp_path / kernels_file("k", "f")
    file.parent.mkdir()
    file.write_text(matmul.kernels)
    kernel = captured_kernel("k", read_section("k", SECTION), matmul.to_json()["ops"], "f")
    dtypes = tuple((name, "float32") for name in ("x", "y", "out"))
    options = (("num_stages", 1), ("num_warps", 8))
    row = TunedRow("k_f", "f", 0, dtypes, (512, 640, 768), (("config", 1),), options, 1.0, 2.0)
    table = write_table(tmp_path, TunedTable("NVIDIA H100", "sm_90", (row,)))
    plan: Any = SimpleNamespace(
        framework="torch", aot=(replace(kernel, tables=(table,)),), components=(), generated=(),
        op_modules=(), ops_name="_k", variant="torch211-cxx11-cu130-x86_64-linux",
    )  # fmt: skip
    with dsl_compiler(cache) as compiler:
        output = build_aot_kernels(plan, tmp_path, compiler, lambda *_: None)
    units = [one.unit for one in output.compiled[0][1]]
    assert {dict(unit.constants)["config"] for unit in units if unit.launch == 0} == {0, 1}
    key = "INT64_C(512), INT64_C(640), INT64_C(768)"
    assert key in output.files["aot/k_f.cpp"].decode()


def test_a_function_with_gradients_calls_kernels(on_hopper: Captures) -> None:
    arguments = {
        "x": MATRIX,
        "weight": {"shape": ["N"], "dtypes": "x"},
        "eps": {"kind": "float", "example": 1e-6},
    }
    wrapper, _ = on_hopper("kernels:RMSNorm", arguments, SIZES, backward=True)
    assert wrapper.backward is not None
    launch = wrapper.forward.section["launch"][0]
    assert launch["configs"] == "autotune"
    assert launch["args"]["eps"] == "eps"
    assert "rms_norm_backward" in str(wrapper.backward.section["launch"])
    assert "cdiv(M, 4)" in str(wrapper.backward.section)


def test_a_config_that_helion_saved_is_a_candidate(on_hopper: Captures) -> None:
    wrapper, _ = on_hopper("kernels:row_sums", {"x": MATRIX}, SIZES)
    assert wrapper.forward.section["launch"][0]["configs"] == "autotune"
    assert 'triton.Config({"config": 1}, num_stages=1, num_warps=4)' in wrapper.kernels
    assert 'triton.Config({"config": 2}, num_stages=1, num_warps=4)' in wrapper.kernels  # cached


def test_static_shapes_need_sizes(captured: Captures) -> None:
    wrapper, _ = captured("kernels:doubled", {"x": {"shape": [64, 1024], "dtypes": ["bfloat16"]}})
    (launch,) = wrapper.forward.section["launch"]  # of both archs
    assert launch["grid"] == [64]
    with pytest.raises(CheckError) as refused:
        captured("kernels:doubled", {"x": MATRIX})
    assert re.match(r"kernels\.py:\d+: .*shapes are static, with many sizes", refused.value.message)


def test_constants_have_code_of_their_own(on_hopper: Captures) -> None:
    x = {"shape": [64, 128], "dtypes": ["float32"]}
    options = {"factor": {"choices": [2, 3]}, "is_negative": {"choices": [True, False]}}
    wrapper, _ = on_hopper("kernels:multiplied", {"x": x, **options})
    codes = dict(re.findall(r"def (\w+)\(.*?tl\.full\(\[\], (-?\d)", wrapper.kernels, re.DOTALL))
    launches = wrapper.forward.section["launch"]
    assert {launch["when"]: codes[launch["function"]] for launch in launches} == {
        "factor == 2 and is_negative": "-2",
        "factor == 2 and not is_negative": "2",
        "factor != 2 and is_negative": "-3",
        "factor != 2 and not is_negative": "3",
    }


@pytest.mark.parametrize(
    ("function", "reason"),
    [("refused", "which Helion does not compile"), ("in_cute", "whose backend is `cute`")],
)
def test_what_is_refused_is_an_error_at_the_line(
    captured: Captures, function: str, reason: str
) -> None:
    with pytest.raises(CheckError) as refused:
        captured(f"kernels:{function}", {"x": MATRIX})
    assert re.match(rf"kernels\.py:\d+: .*calls `{function}`, {reason}", refused.value.message)
