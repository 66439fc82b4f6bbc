"""The CUDA variants of the examples, built here for this GPU, pass the kernels' own tests on it.

`KBUILD_PREBUILT=FOLDER` takes variants that were built elsewhere: `FOLDER/relu/build/...`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, CommandProject

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
EXAMPLES = ("relu", "relu-stable-abi", "relu-tvm-ffi")


@pytest.fixture(scope="module", params=EXAMPLES)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> CommandProject:
    """A copy of the example with its CUDA variant."""
    if request.param == "relu-tvm-ffi" and not has_tvm_ffi():
        pytest.skip("apache-tvm-ffi is not installed for this interpreter")
    folder = tmp_path_factory.mktemp(request.param)
    root = folder / request.param
    ignored = shutil.ignore_patterns("build", ".kbuild", "__pycache__")
    shutil.copytree(ROOT / "examples" / request.param, root, ignore=ignored)
    (folder / "cache").mkdir()
    bench = CommandProject(root, folder / "cache")
    prebuilt = os.environ.get("KBUILD_PREBUILT")
    if prebuilt:
        shutil.copytree(Path(prebuilt) / request.param / "build", root / "build")
    else:
        bench.kbuild("build", "--dev", "--backend", "cuda")
    return bench


def has_tvm_ffi() -> bool:
    """Whether the interpreter has it without PYTHONPATH, as builds look for it."""
    command = [sys.executable, "-I", "-c", "import tvm_ffi"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: TID251


def test_the_kernels_own_tests_pass(built: CommandProject) -> None:
    done = built.kbuild("test", "--", "-q")
    assert "passed" in done.stdout + done.stderr


def test_the_example_computes_what_torch_does(built: CommandProject) -> None:
    example = str(built.root / "example.py")
    code = f"import runpy, sys; sys.exit(runpy.run_path({example!r})['main']())"
    assert "relu on cuda: equal to torch.relu" in built.python(code)


def test_a_development_build_is_for_this_gpu_only(built: CommandProject) -> None:
    if os.environ.get("KBUILD_PREBUILT"):
        pytest.skip("built elsewhere, for all archs")
    (variant,) = (path for path in (built.root / "build").iterdir() if path.is_dir())
    archs = json.loads((variant / "metadata.json").read_text())["backend"]["archs"]
    assert len({arch.rstrip("af").removesuffix("+PTX") for arch in archs}) == 1
