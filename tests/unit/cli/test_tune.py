"""`kbuild tune`, from the command line to the table, on ops that run on the processor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.dsl.tune.results import REPETITIONS
from tests.support.projects import BINDING, kernel, write_project
from tests.support.tunable_variant import SECTION, calls, write_variant

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = [pytest.mark.full, pytest.mark.torch]
TABLE = "tuned/cpu.json"


@pytest.fixture
def tune(kbuild, here):
    """`tune("--op", "x")` of the variant in `here/build/v`; the project is `here`."""

    def run(*argv: str):
        given = ("--variant", "build/v", "--device", "cpu", "--python", sys.executable)
        return kbuild("tune", *given, *argv)

    return run


@pytest.fixture
def variant(here):
    return write_variant(here / "build" / "v")


def rows(here) -> list[dict]:
    return json.loads((here / TABLE).read_text())["rows"]


class TestOneLaunch:
    @pytest.mark.quick
    def test_the_whole_way(self, tune, here, variant):
        answer = tune()
        assert answer.code == 0, answer.err
        found = rows(here)
        assert [(row["op"], row["launch"], row["key"]) for row in found] == [
            ("scale", 0, [16]),
            ("scale", 0, [64]),
        ]
        for row in found:
            assert row["constants"] == {"HOW": "fast"}
            assert row["dtypes"] == {"x": "float32", "out": "float32"}
            assert 500 <= row["us"] < row["default_us"]
            assert row["default_us"] >= 3000
        head = json.loads((here / TABLE).read_text())
        assert (head["device"], head["arch"]) == ("CPU", "cpu")
        assert {"kbuild", "torch", "triton"} <= head["versions"].keys()
        # What is excluded, and why; what is not meant for the call or the device is not tried.
        assert (
            '{ HOW = "wrong" }: wrong results: 16 of 16 values differ, by up to 1 (and for 1 more)'
            in answer.err
        )
        assert "RuntimeError: needs 300000 bytes of shared memory" in answer.err
        assert {line.split()[1] for line in calls(variant)} == {"slow", "fast", "wrong", "large"}
        assert "compared only with those of its default candidate" in answer.err
        assert '{ HOW = "fast" }' in answer.out
        assert answer.out.splitlines()[0].split()[:4] == ["op", "launch", "dtypes", "key"]

        # What was measured is not measured again.
        again = tune("--json")
        assert calls(variant) == []
        assert [one["us"] for one in again.json["devices"][0]["results"]] == [
            row["us"] for row in found
        ]
        assert rows(here) == found

    def test_a_reference(self, tune, here):
        write_variant(
            here / "build" / "v", SECTION.replace("tune = {", 'tune = { reference = "right:scale",')
        )
        (here / "right.py").write_text("def scale(x, by):\n    return x * by + 1\n")
        answer = tune("--json")
        assert [row["constants"] for row in rows(here)] == [{"HOW": "wrong"}] * 2
        kinds = {
            (one["kind"], one["candidate"])
            for one in answer.json["devices"][0]["results"][0]["excluded"]
        }
        assert ("wrong", '{ HOW = "slow" }') in kinds
        assert "default candidate alone" not in answer.err

        (here / "right.py").write_text("def scale(x, by):\n    return x * by\n")
        assert tune().code == 0
        assert [row["constants"] for row in rows(here)] == [{"HOW": "fast"}] * 2

    def test_inputs_of_the_project(self, tune, here):
        text = SECTION.replace(
            "tune = {", 'tune = { reference = "own:expected", inputs = "own:make",'
        )
        write_variant(here / "build" / "v", text)
        (here / "own.py").write_text(
            "import torch\n"
            "def make(sizes, dtypes, device):\n"
            "    return {'x': torch.full((sizes['N'],), 3.0, device=device)}\n"
            "def expected(x, by):\n"
            "    assert bool((x == 3).all()), 'other inputs'\n"
            "    return x * by\n"
        )
        assert tune().code == 0
        assert [row["constants"] for row in rows(here)] == [{"HOW": "fast"}] * 2

    def test_a_reference_that_fails(self, tune, here):
        text = SECTION.replace("tune = {", 'tune = { reference = "lacking:f",')
        write_variant(here / "build" / "v", text)
        answer = tune()
        assert answer.code == 0
        assert "not measured: ModuleNotFoundError: No module named 'lacking'" in answer.err
        assert not (here / TABLE).exists()

    def test_a_candidate_that_ends_the_process(self, tune, here):
        text = SECTION.replace('{ HOW = "wrong" }', '{ HOW = "crash" }').replace("16, 64", "16")
        write_variant(here / "build" / "v", text)
        answer = tune()
        assert answer.code == 0, answer.err
        assert (
            '{ HOW = "crash" }: does not run: it ended the process with exit code 7' in answer.err
        )
        (row,) = rows(here)
        assert row["constants"] == {"HOW": "fast"}

    def test_shapes_that_are_wrong(self, tune, here, variant):
        (here / "s.toml").write_text("scal = [{ N = 5 }]")
        answer = tune("--shapes", "s.toml")
        assert answer.code == 3
        assert "there is no op `scal`" in answer.err


class TestResuming:
    def test_after_kill_9(self, tune, here):
        sizes = ", ".join(map(str, range(1, 9)))
        folder = write_variant(here / "build" / "v", SECTION.replace("16, 64", sizes))
        argv = (sys.executable, "-m", "kbuild", "tune", "--variant", "build/v", "--device", "cpu")
        with subprocess.Popen(  # noqa: TID251
            (*argv, "--python", sys.executable), cwd=here, stderr=subprocess.DEVNULL, text=True
        ) as process:
            journals = here / ".kbuild" / "tune"
            until = time.monotonic() + 120
            while time.monotonic() < until and process.poll() is None:
                if any('"done"' in file.read_text() for file in journals.glob("*.jsonl")):
                    break
                time.sleep(0.02)
            os.kill(process.pid, signal.SIGKILL)
        (journal,) = journals.glob("*.jsonl")
        done = journal.read_text().count('"done"')
        assert 1 <= done < 8
        with journal.open("a") as file:
            file.write('{"done": "cut o')
        time.sleep(0.5)  # the probe ends when it cannot say anything
        calls(folder)
        answer = tune("--json")
        assert answer.code == 0, answer.err
        assert [row["key"] for row in rows(here)] == [[n] for n in range(1, 9)]
        lines = [line for line in journal.read_text().splitlines() if line.endswith("}")]
        records = [record for record in map(json.loads, lines) if "done" in record]
        done = Counter((record["done"], record["repetition"]) for record in records)
        assert set(done.values()) == {1}  # nothing was measured twice
        repetitions = Counter(job for job, _ in done)
        assert len(repetitions) == 8
        assert min(repetitions.values()) >= REPETITIONS


class TestRefused:
    @pytest.mark.quick
    def test_no_gpu(self, kbuild, here, variant):
        answer = kbuild("tune", "--variant", "build/v", "--python", sys.executable)
        assert answer.code == 4
        assert "finds no GPU here" in answer.err
        assert "--python" in answer.err


@pytest.mark.quick
class TestBuilding:
    @pytest.mark.quick
    def test_variants_for_tuning_are_not_published(self, kbuild, demo):
        answer = kbuild("build-and-upload", "demo", "--keep-all")
        assert answer.code == 2
        assert "is for `kbuild tune` and is not published" in answer.err

    def test_one_is_built_for_the_torch_that_measures(self):
        from kbuild.cli.tune_build import selection_for_torch
        from kbuild.plan.project import open_project
        from kbuild.plan.selection import select_variants
        from kbuild.project.variant import host_system

        project = open_project(EXAMPLES / "gemm-cute")
        found = select_variants(project, selection_for_torch(project, "cuda", "2.11.0+cu130"))
        named = f"torch-stable-abi211-cu130-{host_system()}"
        assert [str(choice.variant) for choice in found] == [named]
        for torch in ("2.11.0", "2.11.0+cu118"):
            assert len(select_variants(project, selection_for_torch(project, "cuda", torch))) > 1

    def test_a_torch_for_cuda_measures_the_cpu_too(self):
        """Also a Torch that no plain build is for."""
        from kbuild.cli.tune_build import selection_for_torch
        from kbuild.plan.project import open_project
        from kbuild.plan.selection import select_variants
        from kbuild.project.variant import host_system

        project = open_project(EXAMPLES / "relu")
        found = select_variants(project, selection_for_torch(project, "cpu", "2.11.0+cu130"))
        assert [str(choice.variant) for choice in found] == [f"torch211-cxx11-cpu-{host_system()}"]

    def test_it_has_the_archs_of_all_devices(self, monkeypatch, tmp_path):
        from kbuild.cli import tune_build
        from kbuild.dsl.tune.host import Device

        requests = []
        result = SimpleNamespace(error=None, path=tmp_path)
        monkeypatch.setattr(
            tune_build, "build", lambda _, options, __: [requests.append(options), result][1:]
        )
        devices = [
            Device(f"cuda:{number}", name, arch, 132, torch="2.11.0+cu130")
            for number, (name, arch) in enumerate(
                [("NVIDIA H100", "sm_90"), ("NVIDIA A100", "sm_80"), ("NVIDIA H100", "sm_90")]
            )
        ]
        example, python = EXAMPLES / "gemm-triton", Path(sys.executable)
        tune_build.build_for_devices(None, example, python, devices)
        assert requests[0].archs == ("9.0", "8.0")


def test_a_build_of_the_same_images_goes_on(tune, here, variant):
    """What is built again after a table was written has another namespace, but the same times."""
    data = json.loads((variant / "aot.json").read_text())
    (variant / "aot.json").write_text(json.dumps({**data, "images": "1" * 64}))
    assert tune().code == 0
    calls(variant)
    code = (variant / "__init__.py").read_text()
    (variant / "__init__.py").write_text(code.replace("_tunable_cpu_1", "_tunable_cpu_2"))
    again = {**data, "images": "1" * 64, "namespace": "_tunable_cpu_2"}
    (variant / "aot.json").write_text(json.dumps(again))
    assert tune().code == 0
    assert calls(variant) == []
    (variant / "aot.json").write_text(json.dumps({**again, "images": "2" * 64}))
    assert tune("--op", "scale").code == 0
    assert calls(variant) != []


def test_a_project_without_dsl_kernels_has_nothing_to_tune(kbuild, here, monkeypatch):
    write_project(here / "demo", BINDING, kernel("cpu"))
    monkeypatch.setattr("kbuild.dsl.tune.host.ProbeHost.__enter__", None)  # no GPU is looked for
    answer = kbuild("tune", "demo")
    assert answer.code == 2
    assert "my-kernel has nothing to tune: no kernel is written in a Python DSL" in answer.err
