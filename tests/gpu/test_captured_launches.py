"""Captured launches on a GPU, beside Triton's own: `captured/compare.py`.

`KBUILD_TEST_CAPTURED=FOLDER` has the project as `kbuild build` left it: `FOLDER/build`.
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
FOLDER = Path(__file__).parent / "captured"
PROJECT = Path(os.environ.get("KBUILD_TEST_CAPTURED", FOLDER))
FIRST_CALL_MS = 20
LAUNCH_RATIO = 0.6


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_launches_do_what_triton_does(tmp_path: Path) -> None:
    if not (PROJECT / "build").is_dir():
        pytest.skip(f"{PROJECT} is not built")
    answer = tmp_path / "answer.json"
    command = (sys.executable, str(FOLDER / "compare.py"), str(PROJECT), "--save", str(answer))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    report = json.loads(answer.read_text())
    assert [name for name in report["differ"] if name.endswith("differs")] == []
    assert report["comparisons"] > 50
    assert not report["imported_triton"]
    assert report["first_call_ms"]["captured"] < FIRST_CALL_MS
    slow = {n: t for n, t in report["launch_us"].items() if t["ratio"] > LAUNCH_RATIO}
    assert not slow, report["launch_us"]
