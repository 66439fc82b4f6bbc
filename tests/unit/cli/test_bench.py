"""`kbuild bench` on ops that run on the processor, from the scripts to the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbuild.publish.card.facts import read_results
from kbuild.system.processes import LocalRunner
from tests.support.hub.fixture import HubBench, running_hub

pytestmark = [pytest.mark.full, pytest.mark.torch]

VARIANT = "torch-cpu"
KERNEL = """\
import time
import torch

LIBRARY = torch.library.Library({namespace!r}, "DEF")
LIBRARY.define("double(Tensor x, Tensor(a!) out) -> ()")


def _double(x, out):
    time.sleep({seconds})
    torch.mul(x, {factor}, out=out)


LIBRARY.impl("double", _double, "CPU")


def double(x, out):
    torch.ops.{namespace}.double(x, out)
"""
BENCHMARK = """\
import torch
from kernels.benchmark import Benchmark


class DoubleBenchmark(Benchmark):
    seed = 0

    def setup(self):
        self.x = torch.randn(1000, device=self.device)
        self.out = torch.empty_like(self.x)
        self.unused = torch.empty(7)

    def benchmark_plain(self):
        self.kernel.double(self.x, self.out)

    def verify_plain(self):
        return self.x + self.x

    def setup_product(self):
        self.setup()
        self.flops, self.bytes_moved = 1000, 12345

    benchmark_product = benchmark_plain
"""


def write_variant(folder: Path, namespace: str, seconds: float, factor: int = 2) -> Path:
    folder.mkdir(parents=True)
    code = KERNEL.format(namespace=namespace, seconds=seconds, factor=factor)
    (folder / "__init__.py").write_text(code)
    facts = {"name": "demo", "id": namespace, "version": 1, "license": "MIT"}
    more = {"python-depends": [], "backend": {"type": "cpu"}}
    (folder / "metadata.json").write_text(json.dumps({**facts, **more}))
    return folder


@pytest.fixture
def project(demo: Path) -> Path:
    (demo / "benchmarks").mkdir()
    (demo / "benchmarks" / "benchmark.py").write_text(BENCHMARK)
    write_variant(demo / "build" / VARIANT, "_demo_a", 0.002)
    return demo


@pytest.fixture
def bench(kbuild, project):
    def run(*argv: str):
        given = ("--variant", VARIANT, "--device", "cpu", "--processes", "1")
        return kbuild("bench", str(project), *given, "--python", sys.executable, *argv)

    return run


def test_results_and_limits(bench, project) -> None:
    output = project / "benchmarks" / "results" / "x.json"
    answer = bench("--json", "--output", str(output))
    assert answer.code == 0, answer.err
    document = json.loads(output.read_text())
    assert document == answer.json
    by_name = {entry["workload"]: entry for entry in document["results"]}
    plain, product = by_name["DoubleBenchmark.plain"], by_name["DoubleBenchmark.product"]
    assert plain["verified"] is True
    assert plain["timingResults"]["median_ms"] >= 2
    assert plain["timingResults"]["ref_mean_ms"] < 2
    assert plain["bytes"] == 2 * 4000  # of the op's tensors, not of the benchmark's
    assert plain["roofline"]["limit"] == "copy"
    assert 0 < plain["roofline"]["share"] < 1
    assert "verified" not in product
    assert (product["bytes"], product["flops"]) == (12345, 1000)
    assert set(document["limits"]) == {"copy", "float32"}
    assert document["kernelCommitSha"] == "a"
    # The card reads it like the client's own files.
    (run,) = read_results(output.parent)
    assert [timing.workload for timing in run.timings] == ["plain", "product"]
    assert run.timings[0].reference is not None


@pytest.mark.parametrize("namespace", ["_demo_b", "_demo_a"], ids=["one", "alternating"])
def test_a_regression_is_an_exit_code(bench, here, project, namespace) -> None:
    """In one process, or in several where both builds' ops have the same names."""
    code = KERNEL.format(namespace="_demo_a", seconds=0.02, factor=2)
    (project / "build" / VARIANT / "__init__.py").write_text(code)
    write_variant(here / "old" / "build" / VARIANT, namespace, 0.0005)
    slow = bench("-k", "plain", "--against", "old", "--max-slowdown", "50%")
    assert slow.code == 14, slow.err
    assert "DoubleBenchmark.plain: +" in slow.err
    header, row = slow.out.splitlines()
    assert header.split()[:7] == [
        *("workload", "median", "spread", "reference", "speed-up", "against", "change")
    ]
    assert row.startswith("plain ")


OTHER = "torch211-cxx11-cu130-x86_64-linux"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubBench]:
    """A Hub with a slower build for this machine and one for another."""
    pytest.importorskip("huggingface_hub")
    folder = write_variant(tmp_path / "published", "_demo_b", 0.02)
    files = {f"build/{VARIANT}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    with running_hub(tmp_path / "hub") as bench:
        bench.publish("org/demo", {**files, f"build/{OTHER}/__init__.py": b"x"})
        yield bench


def test_against_a_revision_on_the_hub(hub, project) -> None:
    """Only the variant that is compared is downloaded; a second time, it needs no network."""
    given = ("--variant", VARIANT, "--device", "cpu", "--processes", "1", "-k", "plain")
    argv = (sys.executable, "-m", "kbuild", "bench", *given, "--python", sys.executable)
    argv += ("--against", "hub:org/demo@v1", "--output", "results.json")
    for more in ({}, {"HF_HUB_OFFLINE": "1"}):
        done = LocalRunner().run(argv, cwd=project, env={**hub.environ(None), **more})
        assert done.ok, done.output
        (entry,) = json.loads((project / "results.json").read_text())["results"]
        assert entry["slowdown"] < -0.2
    assert not any(OTHER in record.target for record in hub.log.matching("/resolve/"))


@pytest.mark.parametrize(("roundings", "code"), [(1, 0), (8, 8)])
def test_results_may_differ_by_a_rounding_of_their_dtype(bench, project, roundings, code) -> None:
    script = project / "benchmarks" / "benchmark.py"
    text = BENCHMARK.replace(
        "device=self.device)", "device=self.device, dtype=torch.bfloat16) + 100"
    )
    wrong = f"(self.x + self.x) * (1 + {roundings} * torch.finfo(torch.bfloat16).eps)"
    script.write_text(text.replace("self.x + self.x", wrong))
    assert bench("-k", "plain").code == code


def test_a_wrong_result_fails(bench, here, project) -> None:
    write_variant(here / "old" / VARIANT, "_demo_b", 0.0, factor=3)
    answer = bench("--against", "old", "-k", "plain")
    assert answer.code == 8
    assert "DoubleBenchmark.plain, against: the result differs from the reference" in answer.err
    script = project / "benchmarks" / "benchmark.py"
    script.write_text(BENCHMARK.replace("double(self.x", "triple(self.x"))
    answer = bench("-k", "plain")
    assert answer.code == 8
    assert "DoubleBenchmark.plain: AttributeError: module" in answer.err
