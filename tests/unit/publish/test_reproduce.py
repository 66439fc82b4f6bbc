"""How two builds are compared, and the surroundings of the second."""

import os
from pathlib import Path

import pytest

from kbuild.publish.comparison import compare_folders
from kbuild.publish.reproduce import RunnerWithEnvironment
from kbuild.system.processes import LocalRunner

METADATA = '{\n  "name": "relu",\n  "version": 1\n}\n'


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("before", "after"):
        folder = tmp_path / name
        (folder / "layers").mkdir(parents=True)
        (folder / "metadata.json").write_text(METADATA)
        (folder / "layers" / "__init__.py").write_text("x = 1\n")
        (folder / "table.bin").write_bytes(b"\xff\x00\x01")
    return tmp_path / "before", tmp_path / "after"


def test_what_python_and_signers_leave_is_no_part_of_a_build(pair):
    (pair[0] / "__pycache__").mkdir()
    (pair[0] / "__pycache__" / "x.pyc").write_bytes(b"1")
    (pair[1] / "metadata.json.sigstore").write_text("{}")
    assert compare_folders(*pair) == ()


def test_text_gets_a_short_diff(pair):
    (pair[1] / "metadata.json").write_text(METADATA.replace("1", "2"))
    (difference,) = compare_folders(*pair)
    assert '-  "version": 1' in difference.lines
    assert '+  "version": 2' in difference.lines
    assert len(difference.lines) <= 6


def test_bytes_get_an_offset(pair):
    (pair[1] / "table.bin").write_bytes(b"\xff\x00\x02")
    (difference,) = compare_folders(*pair)
    assert difference.lines == ("byte 0x2: 01 -> 02",)


SHOW = ("sh", "-c", 'echo "$TZ $KEPT"')


def test_some_variables_change_and_others_stay(monkeypatch):
    monkeypatch.setenv("KEPT", "own")
    runner = RunnerWithEnvironment(LocalRunner(), {"TZ": "Asia/Tokyo"})
    assert runner.run(SHOW).output == "Asia/Tokyo own\n"
    given = {"PATH": os.environ["PATH"], "TZ": "UTC", "KEPT": "given"}
    assert runner.run(SHOW, env=given).output == "Asia/Tokyo given\n"
