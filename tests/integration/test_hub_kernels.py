"""The real `kernels` client loads kernels from the Hub of `tests/support/hub`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hub.fixture import HubBench, running_hub
from tests.support.hub.values import Entry, folder_ids

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("need_torch")]
VARIANT = "build/torch-cpu"
UPLOAD = """
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("org/twice", repo_type="kernel", exist_ok=True)
api.create_branch("org/twice", branch=arguments[1], repo_type="kernel", exist_ok=True)
api.upload_folder(repo_id="org/twice", folder_path=arguments[0], repo_type="kernel",
                  revision=arguments[1])
answer("sent")
"""
LOAD = """
import torch
from kernels import get_kernel
kernel = get_kernel("org/twice", version=int(arguments[0]))
answer([kernel.twice(torch.ones(3)).tolist(), kernel.VERSION])
"""


def kernel(root: Path, version: int) -> Path:
    """A kernel in Python alone, as a builder lays it out."""
    folder = root / f"v{version}" / VARIANT
    folder.mkdir(parents=True)
    metadata = {
        "name": "twice",
        "id": f"_twice_cpu_v{version}",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "__init__.py").write_text("from ._twice import VERSION, twice\n")
    code = f"VERSION = {version}\n\n\ndef twice(x):\n    return x * 2\n"
    (folder / "_twice.py").write_text(code)
    (folder / "table.bin").write_bytes(bytes(range(256)))  # one that goes through LFS
    return folder.parents[1]


@pytest.fixture
def published(hub: HubBench, tmp_path: Path) -> HubBench:
    for version in (1, 2):
        assert hub.python(UPLOAD, str(kernel(tmp_path, version)), f"v{version}") == "sent"
    hub.log.clear()
    return hub


@pytest.mark.quick
def test_get_kernel(published: HubBench) -> None:
    assert published.python(LOAD, "1", token=None) == [[2.0, 2.0, 2.0], 1]
    assert published.python(LOAD, "2", token=None) == [[2.0, 2.0, 2.0], 2]
    assert published.log.unknown == []
    assert published.log.leaks == []
    assert len(published.log.matching("GET /api/organizations/org/overview")) == 2
    assert all("kernels/" in r.agent for r in published.log.matching("/refs"))
    error = published.python(LOAD, "3", token=None)
    assert error["text"] == "Version 3 not found, available versions: 1, 2"


def test_the_second_load_downloads_nothing(published: HubBench) -> None:
    published.python(LOAD, "1")
    published.log.clear()
    published.python(LOAD, "1")
    assert published.log.matching("GET .*/(resolve|download)/") == []


def test_who_is_not_trusted_is_not_loaded(tmp_path: Path) -> None:
    with running_hub(tmp_path, trusted=("somebody",)) as hub:
        hub.python(UPLOAD, str(kernel(tmp_path, 1)), "v1")
        error = hub.python(LOAD, "1")
        assert "is not from a trusted publisher" in error["text"]


def test_lock_names_the_commit_of_the_branch(published: HubBench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    wanted = '[tool.kernels.dependencies]\n"org/twice" = 1\n'
    (project / "pyproject.toml").write_text(wanted)
    script = Path(sys.executable).with_name("kernels")
    done = published.run(str(script), "lock", str(project))
    assert done.returncode == 0, done.stderr
    (lock,) = json.loads((project / "kernels.lock").read_text())
    head = published.hub.repository("org/twice").resolve("v1").oid
    assert lock["lock"]["commit"] == head


BUILD = """\
[general]
name = "twice"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
SLOWER = "import time\n\n\ndef twice(x):\n    time.sleep(0.005)\n    return x + x\n"
BENCHMARK = """\
import torch
from kernels.benchmark import Benchmark


class Twice(Benchmark):
    def setup(self):
        self.x = torch.ones(100)

    def benchmark_it(self):
        self.out = self.kernel.twice(self.x)

    def verify_it(self):
        return self.x + self.x
"""


def test_bench_against_a_published_version(published: HubBench, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for path, text in (
        ("build.toml", BUILD),
        ("torch-ext/twice/__init__.py", SLOWER),
        ("benchmarks/benchmark.py", BENCHMARK),
    ):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)

    def bench(version: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-m", "kbuild", "bench", str(project), "--device", "cpu")
        cache = {"KBUILD_CACHE_DIR": str(tmp_path / "cache")}
        more = ("--processes", "1", "--against", f"hub:org/twice@{version}", *options)
        return published.run(*argv, *more, env=cache)

    done = bench("v1", "--json", "--max-slowdown", "100%")
    assert done.returncode == 14, done.stderr
    document = json.loads(done.stdout)
    (workload,) = document["results"]
    assert document["error"]["kind"] == "regression"
    assert workload["verified"]
    assert workload["slowdown"] > 1
    assert workload["against"]["median_ms"] < workload["timingResults"]["median_ms"]
    assert "error: slower than --max-slowdown 100.0%:\n    Twice.it: +" in done.stderr
    done = bench("v9")
    assert done.returncode == 2
    assert "org/twice has no revision `v9`" in done.stderr
    assert "looking for devices" not in done.stderr


def test_a_cut_download_still_loads(published: HubBench) -> None:
    published.faults.add("cut-answer", r"GET /download/|GET .*/resolve/", times=3)
    assert published.python(LOAD, "1") == [[2.0, 2.0, 2.0], 1]
    assert len(published.faults.fired) == 3


def test_folders_are_named_as_git_names_them(tmp_path: Path) -> None:
    paths = ("a-b", "a/b/c", "a/b.d", "a.c", "z", "a/b/0")
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)

    def git(*arguments: str) -> str:
        argv = ["git", *arguments]
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True)  # noqa: TID251
        return done.stdout.strip()

    git("init", "-q")
    git("add", "-A")
    files = {path: Entry(git("hash-object", path), len(path)) for path in paths}
    ids = folder_ids(files)
    tree = git("write-tree")
    assert ids == {"": tree, **{f: git("rev-parse", f"{tree}:{f}") for f in ("a", "a/b")}}
