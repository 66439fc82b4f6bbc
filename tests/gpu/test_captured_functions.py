"""Captured functions on a GPU, beside the same with Triton: `captured_functions/compare.py`.

`KBUILD_TEST_FUNCTIONS_CAPTURED=FOLDER` has the project as `kbuild build` left it: `FOLDER/build`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
FOLDER = Path(__file__).parent / "captured_functions"
PROJECT = Path(os.environ.get("KBUILD_TEST_FUNCTIONS_CAPTURED", FOLDER))
FIRST_CALL_MS = 20


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_ops_do_what_the_functions_do(tmp_path: Path) -> None:
    if not (PROJECT / "build").is_dir():
        pytest.skip(f"{PROJECT} is not built")
    answer = tmp_path / "answer.json"
    command = (sys.executable, str(FOLDER / "compare.py"), str(PROJECT), "--save", str(answer))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    report = json.loads(answer.read_text())
    assert report["differ"] == []
    assert report["comparisons"] > 200
    assert all(report["refused"].values()), report["refused"]
    assert report["compiles"]
    assert report["opcheck"] == ["SUCCESS"]
    assert not report["imported_triton"]
    assert report["first_call_ms"] < FIRST_CALL_MS
