"""`kbuild capture` of kernels that Helion writes: those of `tests/gpu/captured_helion`."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbuild.dsl.environment import DslEnvironments
from kbuild.ops.section import read_section
from kbuild.plugins.capture.description import Declaration
from kbuild.plugins.capture.session import capture
from kbuild.plugins.capture.wrappers import CapturedWrapper
from kbuild.system.errors import CheckError
from kbuild.system.processes import LocalRunner
from kbuild.system.store import open_store
from kbuild.toolchains.wheels.installer import WheelInstaller
from tests.support.stores import cache_with_store, dsl_store

pytestmark = [
    pytest.mark.full,  # Helion takes 20 s to be imported
    pytest.mark.network,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch"),
]
SOURCE = Path(__file__).parents[1] / "gpu" / "captured_helion" / "helion_ops" / "kernels.py"
SAVED = '{"block_sizes": [1], "reduction_loops": [256], "num_warps": 4}'
MATRIX = {"shape": ["M", "N"], "dtypes": ["bfloat16"]}
Capture = Callable[..., tuple[CapturedWrapper, tuple[str, ...]]]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    store = dsl_store("helion-1.5.1", "helion", tmp_path_factory)
    root = tmp_path_factory.mktemp("helion")
    shutil.copy(SOURCE, root / "kernels.py")
    (root / "helion_configs").mkdir()
    (root / "helion_configs" / "row_sums.h200.json").write_text(SAVED)
    runner = LocalRunner()
    cache = cache_with_store(tmp_path_factory.mktemp("cache"), store)
    environments = DslEnvironments(WheelInstaller(runner, open_store(cache)))
    pins = ["helion==1.5.1", "triton==3.6.0"]
    table = {"language": "helion", "toolchain": pins, "src": ["kernels.py"], "backend": ["cuda"]}
    section = read_section("k", {**table, "cuda-capabilities": ["8.0", "9.0"]})

    def capture_one(
        function: str, arguments: Mapping[str, Any], sizes: Mapping[str, Any] | None = None
    ) -> tuple[CapturedWrapper, tuple[str, ...]]:
        declaration = Declaration(
            f"kernels:{function}", "f", arguments, {}, sizes or {}, backward=True
        )
        return capture(declaration, root, section, environments, runner)

    return capture_one


def test_configs_are_candidates(captured: Capture) -> None:
    arguments = {
        "x": {"shape": ["M", "K"], "dtypes": ["bfloat16"]},
        "y": {"shape": ["K", "N"], "dtypes": "x"},
    }
    wrapper, notes = captured("matmul", arguments)
    section = wrapper.forward.section
    small, large = section["launch"]
    assert small["configs"] == "autotune"
    assert "config == 1" in small["grid"][0]
    assert "sm_count()" in small["grid"][0]
    assert small["args"]["x_stride_1"] == "stride(x, 1)"
    assert large["when"] == "N * K > 2147483647 or K * M > 2147483647"
    assert wrapper.kernels.count('triton.Config({"config": ') == 2 * 3
    assert {*re.findall(r"^(?:import|from) (\w+)", wrapper.kernels, re.MULTILINE)} == {"triton"}
    assert notes == ()


def test_a_function_with_gradients_calls_kernels(captured: Capture) -> None:
    arguments = {
        "x": MATRIX,
        "weight": {"shape": ["N"], "dtypes": "x"},
        "eps": {"kind": "float", "example": 1e-6},
    }
    wrapper, _ = captured("RMSNorm", arguments, {"N": (1, 4096)})
    assert wrapper.backward is not None
    launch = wrapper.forward.section["launch"][0]
    assert launch["configs"] == "autotune"
    assert launch["args"]["eps"] == "eps"
    assert "rms_norm_backward" in str(wrapper.backward.section["launch"])


def test_a_config_that_helion_saved_is_a_candidate(captured: Capture) -> None:
    wrapper, _ = captured("row_sums", {"x": MATRIX})
    assert wrapper.forward.section["launch"][0]["configs"] == "autotune"
    assert 'triton.Config({"config": 1}, num_stages=1, num_warps=4)' in wrapper.kernels


def test_static_shapes_need_sizes(captured: Capture) -> None:
    wrapper, _ = captured("doubled", {"x": {"shape": [64, 1024], "dtypes": ["bfloat16"]}})
    (launch,) = wrapper.forward.section["launch"]
    assert launch["grid"] == [64]
    with pytest.raises(CheckError) as refused:
        captured("doubled", {"x": MATRIX})
    assert re.match(r"kernels\.py:\d+: .*shapes are static, with many sizes", refused.value.message)


def test_what_helion_refuses_is_an_error_at_the_line(captured: Capture) -> None:
    with pytest.raises(CheckError) as refused:
        captured("refused", {"x": MATRIX})
    assert re.match(r"kernels\.py:\d+: .*Helion does not compile", refused.value.message)
