"""Tuned tables are judged with `build.toml`, before anything is built."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbuild.ops.tuned_tables import TunedRow, TunedTable, table_text

BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]

[kernel.add]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["add.py"]

[[kernel.add.op]]
schema = "add(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
configs = [{ BLOCK = 1024, num_warps = 4 }]
grid = ["cdiv(N, BLOCK)"]
key = ["N"]
"""
DTYPES = (("x", "float32"), ("out", "float32"))
ROW = TunedRow("add", "add", 0, DTYPES, (64,), (("BLOCK", 1024),), (("num_warps", 4),), 1.0, 2.0)


@pytest.fixture
def judge(kbuild, here):
    (here / "build.toml").write_text(BUILD)
    (here / "add.py").write_text("")
    package = here / "torch-ext" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Demo."""\n\n__all__ = ["one"]\n\none = 1\n')
    (here / "tuned").mkdir()

    def run(text: str | TunedTable):
        text = table_text(text) if isinstance(text, TunedTable) else text
        (here / "tuned" / "nvidia-h200.json").write_text(text)
        return kbuild("check-config")

    return run


def table(*rows: TunedRow) -> TunedTable:
    return TunedTable("NVIDIA H200", "sm_90", rows)


def test_a_broken_one_is_an_error_with_its_line(judge):
    answer = judge(table_text(table(ROW)).replace('"launch": 0', '"launch": "x"'))
    assert answer.code == 3
    assert "tuned/nvidia-h200.json:8: rows[0]: `launch` is missing" in answer.err
    assert "`kbuild tune` again" in answer.err


def test_a_row_that_means_nothing_is_a_warning(judge):
    answer = judge(table(ROW, replace(ROW, key=(65,), constants=(("BLOCK", 64),))))
    assert answer.code == 0
    place = "tuned/nvidia-h200.json:9: warning: rows[1]: "
    assert f"{place}no candidate is {{ BLOCK = 64, num_warps = 4 }}" in answer.err


def test_a_table_is_noticed_when_it_changes(judge):
    assert judge(table(ROW)).code == 0
    assert judge("{").code == 3
    assert judge(table(ROW)).code == 0
