"""`kbuild tune` on a real GPU, with a variant that has every candidate.

`KBUILD_TUNABLE=DIR` is a variant that `kbuild build --keep-all` made elsewhere, for this GPU and
this Torch; the functions that its `tune` tables name are looked for in `KBUILD_TUNABLE_PROJECT`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kbuild.__main__ import main
from kbuild.ops.manifest import read_manifest
from kbuild.ops.tuned_tables import read_tables

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


def tables_of(project):
    files = sorted((project / "tuned").glob("*.json"))
    return read_tables(project, [f"tuned/{file.name}" for file in files])


@pytest.fixture(scope="module")
def variant() -> Path:
    given = os.environ.get("KBUILD_TUNABLE")
    if not given:
        pytest.skip("KBUILD_TUNABLE names no variant")
    return Path(given).absolute()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the tables, with the project's Python files."""
    root = tmp_path_factory.mktemp("project")
    for file in Path(os.environ.get("KBUILD_TUNABLE_PROJECT", root)).glob("*.py"):
        (root / file.name).write_bytes(file.read_bytes())
    return root


def test_a_table_is_measured_and_then_remembered(variant, project, gpu, capsys):
    argv = ["tune", str(project), "--variant", str(variant), "--python", sys.executable, "--json"]
    code = main(argv)
    answer, talk = capsys.readouterr()
    assert code == 0, talk
    (device,) = json.loads(answer)["devices"]
    assert device["device"] == gpu
    assert device["results"]
    for result in device["results"]:
        assert result["winner"] is not None, result
        assert 0.5 < result["us"] <= result["default_us"] * 1.01
        assert not [one for one in result["excluded"] if one["kind"] == "wrong"]

    (table,) = tables_of(project)
    assert (table.device, table.arch[:3]) == (gpu, "sm_")
    assert table.driver
    assert len(table.rows) == len(device["results"])
    ops = {
        (kernel.name, op.name): op
        for kernel in read_manifest(variant).kernels
        for op in kernel.ops()
    }
    for row in table.rows:
        launch = ops[row.kernel, row.op].launches[row.launch]
        assert row.among(launch.candidates) is not None

    assert main(argv) == 0
    again = json.loads(capsys.readouterr().out)["devices"][0]
    assert again["results"] == device["results"]


def test_runs_on_all_gpus_agree_with_one(variant, project, gpu, capsys):
    """GPUs of one model share the calls; the table is that of one GPU, within a few percent."""
    import torch

    count = sum(torch.cuda.get_device_name(at) == gpu for at in range(torch.cuda.device_count()))
    if count < 2:
        pytest.skip(f"there is one {gpu} here, and sharing needs two")
    (first,) = tables_of(project)
    other = project.parent / "all"
    other.mkdir()
    for file in project.glob("*.py"):
        (other / file.name).write_bytes(file.read_bytes())
    argv = ["tune", str(other), "--variant", str(variant), "--python", sys.executable]
    assert main([*argv, "--device", "all"]) == 0
    capsys.readouterr()
    (journal,) = (other / ".kbuild" / "tune").glob("*.jsonl")
    workers = {json.loads(line)["worker"] for line in journal.read_text().split("\n") if line}
    assert len(workers) >= count
    rows = {row.place: row for table in tables_of(other) for row in table.rows}
    ratios = [rows[row.place].microseconds / row.microseconds for row in first.rows]
    assert all(0.95 < ratio < 1.05 for ratio in ratios), ratios
