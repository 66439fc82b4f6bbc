"""Captured functions with candidates of their author: `tuned_functions/compare.py`.

`KBUILD_TEST_FUNCTIONS_TUNED=VARIANT` was built of `tuned_functions`, with the table in its `tuned`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
FOLDER = Path(__file__).parent / "tuned_functions"
VARIANT = os.environ.get("KBUILD_TEST_FUNCTIONS_TUNED")


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.skipif(VARIANT is None, reason="KBUILD_TEST_FUNCTIONS_TUNED names no variant")
def test_calls_run_the_candidates_of_the_shipped_table(tmp_path: Path) -> None:
    (table,) = FOLDER.glob("tuned/*.json")
    answer = tmp_path / "answer.json"
    command = (sys.executable, FOLDER / "compare.py", str(VARIANT), table, "--save", answer)
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    report = json.loads(answer.read_text())
    assert report["differ"] == []
    assert report["comparisons"] > 200
    assert (report["others"], report["triton"]) == ([], False)
    assert report["rows"] > 6
