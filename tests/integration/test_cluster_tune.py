"""Tuning on a cluster on loopback: tables as of a local run, and one measurement per device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kbuild.plugins.cluster.connect import connect
from tests.integration.test_cluster import cluster
from tests.support.tunable_variant import SECTION, write_variant

pytestmark = [pytest.mark.compile, pytest.mark.torch]
pytest.importorskip("distributed")
COMMAND = (sys.executable, "-m", "kbuild", "tune", "--variant", "build/v", "--device", "cpu")
SPANS = """\
    began = time.monotonic()
    time.sleep(PAUSE[how])
    with Path(__file__).with_name("spans.txt").open("a") as file:
        file.write(f"{began} {time.monotonic()}\\n")
"""


def tune(root: Path, *arguments: str, **environ: str) -> tuple[dict[str, Any], str]:
    """The table and the messages of one tuning of `root/build/v`."""
    done = subprocess.run(  # noqa: TID251
        (*COMMAND, *arguments),
        cwd=root,
        env={**os.environ, "NO_COLOR": "1", **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table: dict[str, Any] = json.loads((root / "tuned" / "cpu.json").read_text())
    return table, done.stderr


def project(folder: Path) -> Path:
    variant = write_variant(
        folder / "build" / "v",
        SECTION.replace("16, 64", "16, 64, 256").replace(
            "tune = {", 'tune = { reference = "right:scale",'
        ),
    )
    code = (variant / "__init__.py").read_text()
    (variant / "__init__.py").write_text(code.replace("    time.sleep(PAUSE[how])\n", SPANS))
    (folder / "build.toml").write_text("")
    (folder / "right.py").write_text("def scale(x, by):\n    return x * by\n")
    return folder


def test_two_workers_measure_what_one_machine_does(tmp_path: Path) -> None:
    local, _ = tune(project(tmp_path / "local"), "--python", sys.executable)
    root = project(tmp_path / "remote")
    credentials = tmp_path / "cluster" / "cluster" / "credentials.pem"
    with cluster(tmp_path / "cluster", 2) as (address, _):
        client = connect(address, credentials)
        client.wait_for_workers(2, timeout=60)
        client.close()
        environ = {"KBUILD_CLUSTER_CREDENTIALS": str(credentials), "TOKEN_OF_TEST": "of the user"}
        remote, said = tune(root, "--executor", address, **environ)
        spans = [
            sorted(tuple(map(float, line.split())) for line in file.read_text().splitlines())
            for file in (tmp_path / "cluster" / "workers").glob("*/projects/*/spans.txt")
        ]
        again, _ = tune(root, "--executor", address, **environ)
    assert again == remote
    assert "out of reach" not in said
    assert len(spans) == 2, "a worker measured nothing"
    ordered = sorted(span for some in spans for span in some)
    overlaps = [pair for pair in pairwise(ordered) if pair[0][1] > pair[1][0]]
    assert not overlaps, "two measurements at a time"
    times = {"us", "default_us", "spread"}
    assert remote.keys() == local.keys()
    assert {**remote, "rows": []} == {**local, "rows": []}
    for row, other in zip(remote["rows"], local["rows"], strict=True):
        assert {**row, **dict.fromkeys(times)} == {**other, **dict.fromkeys(times)}
        assert 500 <= row["us"] < row["default_us"]
