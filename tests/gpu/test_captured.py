"""Captured projects on a GPU, beside the author's own code: the scripts of the folders here.

Each takes the project as `kbuild build` left it, `FOLDER/build`, from a variable of its own, or
from the folder here. That of `tuned_functions` names the variant, which was built with the table
in its `tuned`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
HERE = Path(__file__).parent
FIRST_CALL_MS = 20
LAUNCH_RATIO = 0.6


def _report(tmp_path: Path, script: str, *arguments: object) -> Any:
    """Run a script of a folder here, and read what it reports."""
    answer = tmp_path / "answer.json"
    command = (sys.executable, str(HERE / script), *map(str, arguments), "--save", str(answer))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    return json.loads(answer.read_text())


def _project(folder: str, variable: str) -> Path:
    project = Path(os.environ.get(variable, HERE / folder))
    if not (project / "build").is_dir():
        pytest.skip(f"{project} is not built")
    return project


def test_launches_do_what_triton_does(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    project = _project("captured", "KBUILD_TEST_CAPTURED")
    report = _report(tmp_path, "captured/compare.py", project)
    assert [name for name in report["differ"] if name.endswith("differs")] == []
    assert report["comparisons"] > 50
    assert not report["imported_triton"]
    assert report["first_call_ms"]["captured"] < FIRST_CALL_MS
    slow = {n: t for n, t in report["launch_us"].items() if t["ratio"] > LAUNCH_RATIO}
    assert not slow, report["launch_us"]


def test_ops_do_what_the_functions_do(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    project = _project("captured_functions", "KBUILD_TEST_FUNCTIONS_CAPTURED")
    report = _report(tmp_path, "captured_functions/compare.py", project)
    assert report["differ"] == []
    assert report["comparisons"] > 200
    assert all(report["refused"].values()), report["refused"]
    assert report["compiles"]
    assert report["opcheck"] == ["SUCCESS"]
    assert not report["imported_triton"]
    assert report["first_call_ms"] < FIRST_CALL_MS


def test_random_calls_give_the_same(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    project = _project("captured_zoo", "KBUILD_TEST_ZOO_CAPTURED")
    report = _report(tmp_path, "captured_zoo/fuzz.py", project)
    assert report["differences"] == 0, report
    assert all(function["same"] > 5 for function in report["functions"].values()), report


def test_ninetoothed_functions_take_any_layout(tmp_path: Path) -> None:
    project = _project("captured_strides", "KBUILD_TEST_STRIDES_CAPTURED")
    report = _report(tmp_path, "captured_strides/compare.py", project)
    assert report["differ"] == []
    assert report["comparisons"] > 50


def test_helion_kernels_do_what_helion_does(tmp_path: Path) -> None:
    pytest.importorskip("helion")
    project = _project("captured_helion", "KBUILD_TEST_HELION_CAPTURED")
    report = _report(tmp_path, "captured_helion/compare.py", project)
    assert report["differ"] == []
    assert report["comparisons"] > 40
    assert report["imported"] == []
    assert report["refused"]


def test_cutile_launches_do_what_cutile_does(tmp_path: Path) -> None:
    project = _project("captured_cutile", "KBUILD_TEST_CUTILE_CAPTURED")
    report = _report(tmp_path, "captured_cutile/compare.py", project)
    assert report["differ"] == []
    assert report["comparisons"] > 90
    assert not report["imported"]


def test_functions_of_cute_compile_need_no_cute(tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi")
    project = _project("captured_cute", "KBUILD_TEST_CUTE_CAPTURED")
    report = _report(tmp_path, "captured_cute/compare.py", project)
    assert report["differ"] == []
    assert report["comparisons"] > 20
    assert report["graph"]
    assert report["clusters"]
    assert "was not recorded" in report["refusal"]
    assert report["first_call_ms"] < FIRST_CALL_MS


def test_calls_run_the_candidates_of_the_shipped_table(tmp_path: Path) -> None:
    variant = os.environ.get("KBUILD_TEST_FUNCTIONS_TUNED")
    if variant is None:
        pytest.skip("KBUILD_TEST_FUNCTIONS_TUNED names no variant")
    (table,) = HERE.glob("tuned_functions/tuned/*.json")
    report = _report(tmp_path, "tuned_functions/compare.py", variant, table)
    assert report["differ"] == []
    assert report["comparisons"] > 200
    assert (report["others"], report["imported_triton"]) == ([], False)
    assert report["rows"] > 6
