"""The log of the units that a build compiled."""

from __future__ import annotations

import io
import json
from pathlib import Path

from kbuild.build.unit_log import UNIT_LOG_FILE, print_units, read_log
from kbuild.system.ui import Ui

CPU = "torch213-cxx11-cpu-x86_64-linux"
UNIT = {"unit": "a.cpp", "variant": CPU, "language": "CXX", "start": 1.0, "end": 2.0, "status": 0}


def test_the_log_is_read_back(tmp_path: Path) -> None:
    record = {**UNIT, "cache": "hit", "later": "unknown to this kbuild"}
    image = {**UNIT, "unit": "gemm sm_80", "cache": "hit", "image": True}
    lines = [json.dumps(record), json.dumps(image), '{"warning": "w"}', '{"warning": "w"}']
    (tmp_path / "log").write_text("\n".join([*lines, "{torn", "[]", ""]))
    log = read_log(tmp_path / "log")
    assert [unit.unit for unit in log.units] == ["a.cpp", "gemm sm_80"]
    assert log.warnings == ("w",)
    assert log.counts(CPU) == (1, 1)  # images are counted apart
    assert read_log(tmp_path / "none").units == ()


def test_the_slowest_unit_comes_first(tmp_path: Path) -> None:
    slow = {**UNIT, "unit": "b.cu", "cache": "miss", "user": 9.0, "peak": 5222, "torch": 1800}
    off = {**UNIT, "cache": "off", "why": "it uses __DATE__", "user": 1.0}
    (tmp_path / UNIT_LOG_FILE).write_text("\n".join(map(json.dumps, (off, slow))))
    out = io.StringIO()
    print_units(tmp_path, Ui(out=out, err=io.StringIO(), environ={}))
    _, first, second = out.getvalue().splitlines()[:3]
    assert first.split()[:4] == ["b.cu", CPU, "9.0", "5.1"]
    assert "off: it uses __DATE__" in second
