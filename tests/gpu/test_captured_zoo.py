"""Random calls of captured functions on a GPU, beside the originals: `captured_zoo/fuzz.py`.

`KBUILD_TEST_ZOO_CAPTURED=FOLDER` has the project as `kbuild build` left it: `FOLDER/build`.
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
FOLDER = Path(__file__).parent / "captured_zoo"
PROJECT = Path(os.environ.get("KBUILD_TEST_ZOO_CAPTURED", FOLDER))


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_random_calls_give_the_same(tmp_path: Path) -> None:
    if not (PROJECT / "build").is_dir():
        pytest.skip(f"{PROJECT} is not built")
    answer = tmp_path / "answer.json"
    command = (sys.executable, str(FOLDER / "fuzz.py"), str(PROJECT), "--save", str(answer))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    report = json.loads(answer.read_text())
    assert report["differences"] == 0, report
    assert all(function["same"] > 5 for function in report["functions"].values()), report


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_ninetoothed_functions_take_any_layout() -> None:
    folder = FOLDER.with_name("captured_strides")
    project = Path(os.environ.get("KBUILD_TEST_STRIDES_CAPTURED", folder))
    if not (project / "build").is_dir():
        pytest.skip(f"{project} is not built")
    command = (sys.executable, str(folder / "compare.py"), str(project))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stdout + done.stderr
