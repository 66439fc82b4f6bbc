"""Facts of a project's files, its built variants and its measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.publish.card import CardError
from kbuild.publish.card.facts import read_facts, read_results
from kbuild.system.errors import ConfigError

BUILD = """\
[general]
name = "my-relu"
version = 2
edition = 5
license = "MIT"
backends = ["cpu"]
python-depends = ["einops"]
{hub}
[torch-noarch]
"""
HUB = '[general.hub]\nrepo-id = "org/my-relu"\n'
RESULTS = {
    "results": [
        {
            "workload": "ReluBenchmark.small",
            "timingResults": {"mean_ms": 0.01, "std_ms": 0.0, "iterations": 100, "q1_ms": 1},
            "verified": True,
        },
        {"workload": "ReluBenchmark.large", "timingResults": {"mean_ms": 0.5, "ref_mean_ms": 2}},
        {"workload": "ReluBenchmark.bad", "timingResults": {"mean_ms": 9}, "verified": False},
    ],
    "machineInfo": {"gpu": "A GPU", "backend": "CUDA 13.0", "pytorchVersion": "2.13.0"},
    "kernelCommitSha": "1a2b3c4",
}


@pytest.fixture
def project(tmp_path):
    """Writes a project and reads its facts."""

    def read(init: str = "def relu(x): ...", hub: str = HUB, **told):
        package = tmp_path / "torch-ext" / "my_relu"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(init)
        (tmp_path / "build.toml").write_text(BUILD.format(hub=hub))
        return read_facts(open_project(tmp_path), tmp_path / "build", **told)

    return read


def built(root: Path, variant: str, **metadata) -> Path:
    folder = root / "build" / variant
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_bytes(b"x" * 100)
    whole = {
        "name": "my-relu",
        "id": "_my_relu_cpu_1a2b3c4",
        "version": 2,
        "license": "MIT",
        "python-depends": [],
        "backend": {"type": "cpu"},
    } | metadata
    text = json.dumps(whole)
    (folder / "metadata.json").write_text(text)
    return folder


def test_the_configuration(project):
    facts = project()
    assert (facts.repo_id, facts.name, facts.version) == ("org/my-relu", "my-relu", 2)
    assert (facts.license, facts.load, facts.revision) == ("MIT", "version=2", "v2")
    assert facts.python_depends == ("einops",)
    assert facts.public_api.functions[0].signature == "relu(x)"
    assert not facts.has_benchmark


def test_where_it_is_published(project):
    with pytest.raises(ConfigError, match=r"general\.hub\.repo-id"):
        project(hub="")
    assert project(hub="", repo_id="me/mine").repo_id == "me/mine"
    assert project(hub=f'{HUB}branch = "next"\n').load == 'revision="next"'
    assert project(branch="other").load == 'revision="other"'


def test_built_variants(project, tmp_path):
    folder = built(tmp_path, "torch-cpu")
    built(tmp_path, "torch-cuda", version=1)
    built(tmp_path, "torch-rocm", name="other")
    built(tmp_path, ".torch-xpu.new")
    broken = built(tmp_path, "torch-xpu")
    (broken / "metadata.json").write_text("{}")
    (found,) = project().variants
    assert found.name == "torch-cpu"
    assert found.size == 100 + (folder / "metadata.json").stat().st_size
    assert (found.build, found.dirty, found.fault) == ("1a2b3c4", False, "")


@pytest.mark.parametrize(
    "metadata",
    [
        {"id": "_my_relu_cpu_1a2b3c4_dirty"},
        {
            "provenance": {
                "kernel-builder": {"version": "1"},
                "kernel": {"commit": "a" * 40, "dirty": True},
            }
        },
    ],
)
def test_dirty_variants(project, tmp_path, metadata):
    built(tmp_path, "torch-cpu", **metadata)
    (found,) = project().variants
    assert found.dirty
    assert found.build == "1a2b3c4"


class TestResults:
    def test_what_the_client_writes(self, tmp_path):
        (tmp_path / "a gpu.json").write_text(json.dumps(RESULTS))
        (run,) = read_results(tmp_path)
        assert (run.machine, run.software) == ("A GPU", "Torch 2.13.0, CUDA 13.0")
        assert (run.build, run.name) == ("1a2b3c4", "a-gpu")
        large, small = run.timings
        assert (large.workload, large.speedup) == ("large", 4.0)
        assert (small.workload, small.speedup, small.iterations) == ("small", None, 100)

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            "{}",
            '{"results": [{"workload": "x"}]}',
            '{"results": [{"workload": "x", "timingResults": {"mean_ms": 0}}]}',
            '{"results": [{"workload": "x", "timingResults": {"mean_ms": "fast"}}]}',
            '{"results": [{"workload": "x", "timingResults": {"mean_ms": NaN}}]}',
        ],
    )
    def test_what_is_no_result(self, tmp_path, text):
        folder = tmp_path / "benchmarks" / "results"
        folder.mkdir(parents=True)
        (folder / "gpu.json").write_text(text)
        with pytest.raises(
            CardError, match=r"benchmarks/results/gpu\.json: .*not benchmark results"
        ):
            read_results(folder)


def test_what_kbuild_measured_has_the_figures_of_its_table(tmp_path):
    own = {"mean_ms": 3.0, "std_ms": 9.0, "median_ms": 2.0, "iqr_ms": 0.5, "ref_mean_ms": 2.9}
    entry = {"workload": "B.a", "timingResults": own, "reference": {"median_ms": 1.8}}
    of_client = {key: value for key, value in own.items() if key != "median_ms"}
    for name, result in {
        "a": {**entry, "speedup": 0.89},
        "b": entry,
        "c": {"workload": "B.a", "timingResults": of_client},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": [result]}))
    (timing,), (older,), (client,) = (run.timings for run in read_results(tmp_path))
    assert (timing.time, timing.deviation, timing.reference) == (2.0, 0.25, 1.8)
    assert (timing.speedup, older.speedup) == (0.89, 0.9)
    assert (client.time, client.deviation, client.reference) == (3.0, 9.0, 2.9)
