"""`kbuild capture --coverage`: which images a program calls, and which calls have none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.launcher.launched import FAKES, compiler, extension, files_of
from tests.support.launcher.small import small

SCRIPT = """
import ctypes, sys, torch

folder, name = sys.argv[1:3]
cuda = ctypes.CDLL(folder + "/libcuda.so.1")
ctypes.CDLL(folder + "/libtorch_cuda.so")
cuda.fake_set(0, b"NVIDIA H100", 9, 0, 227 * 1024)
torch.ops.load_library(folder + "/" + name + ".so")
ops = getattr(torch.ops, name)
for dtype in sys.argv[3:]:
    try:
        ops.k(torch.zeros(4, dtype=getattr(torch, dtype)))
    except RuntimeError as error:
        print(error, file=sys.stderr)
"""
TABLE = {
    "functions": [
        {
            "source": "my_ops/k.py",
            "function": "k",
            "launches": [
                {
                    "arguments": {"x": "*float16"},
                    "constants": {"BLOCK": 64},
                    "options": {},
                    "op": "k",
                    "form": 0,
                }
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an extension, whose op has two candidates for each of two archs."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("covered")
    compiler(FAKES / "cuda_driver.c", folder / "libcuda.so.1")
    compiler(FAKES / "torch_cuda.c", folder / "libtorch_cuda.so")
    files = files_of("k", [small(targets=("sm_80", "sm_90a"))], module=True)
    extension(files, folder, "_covered")
    (folder / "_launch_table.py").write_text(f"TABLE = {TABLE!r}\n")
    return folder


@pytest.fixture
def covered(package: Path, kbuild, tmp_path: Path):
    """Run calls of the op with some dtypes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = ("--", sys.executable, str(script), str(package), "_covered")
    return lambda *words, options=(): kbuild(
        "capture", str(tmp_path), "--coverage", *options, *command, *words
    )


@pytest.mark.compile
@pytest.mark.torch
def test_images_that_are_called_and_others(covered) -> None:
    answer = covered("float16")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [
        "called: my_ops/k.py: k(BLOCK=64, x=*float16), aligned calls, sm_90a",
        "never called: my_ops/k.py: k(BLOCK=64, x=*float16), sm_90a",
        "never called: k: k, candidate 1, sm_90a",
        "never called: k: k, candidate 1, aligned calls, sm_90a",
    ]
    assert "1 of 4 images were called, none is missing" in answer.err


@pytest.mark.compile
@pytest.mark.torch
def test_calls_without_an_image(covered) -> None:
    answer = covered("float16", "float32", "float32", options=("--json",))
    assert answer.code == 1
    report = json.loads(answer.out)["error"]
    assert report["missing"] == ["`k`: `x` is float32; it takes float16"]
    (called,) = report["called"]
    assert (called["op"], called["candidate"], called["arch"]) == ("k", 0, "sm_90a")
    assert "1 call of the command had no image" in answer.err


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ((), 2, "--coverage needs a command"),
        (("true",), 6, "the command called no image of a package that kbuild built"),
        (("false",), 6, "`false` failed with exit code 1"),
    ],
)
def test_a_command_that_shows_nothing(
    kbuild, tmp_path: Path, command: tuple[str, ...], code: int, message: str
) -> None:
    answer = kbuild("capture", str(tmp_path), "--coverage", "--", *command)
    assert (answer.code, message in answer.err) == (code, True), answer.err
