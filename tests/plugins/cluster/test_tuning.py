"""`kbuild tune --executor` without Dask: real processes with Torch, a scheduler of the test."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kbuild.plugins.cluster import tuning as cluster_tuning
from kbuild.plugins.cluster import worker_probes
from kbuild.plugins.cluster.worker import WorkerState
from tests.support.tunable_variant import SECTION, write_variant

pytestmark = [pytest.mark.full, pytest.mark.torch]


class FakeCluster:
    """Workers that run their tasks in threads; see Dask's client."""

    def __init__(self, folder: Path, models: dict[str, str]) -> None:
        """`models` has the name of each worker's processor."""
        self.models = {f"tcp://{name}": model for name, model in models.items()}
        self.workers = {f"tcp://{name}": {"name": name} for name in models}
        self.sites = {address: WorkerState(folder / address[6:], 1) for address in self.workers}
        self.dying: set[str] = set()
        """Addresses of workers that die with their next measurement."""
        self.measured: list[str] = []
        """Addresses in the order of the jobs."""
        self.data: dict[str, bytes | None] = {}
        self._pool, self._local = ThreadPoolExecutor(8), threading.local()

    def scheduler_info(self) -> dict[str, Any]:
        return {"workers": dict(self.workers), "address": "tls://scheduler"}

    def set_metadata(self, keys: list[str], value: bytes | None) -> None:
        self.data[keys[-1]] = value

    def submit(
        self, function: Any, *values: Any, workers: list[str], pure: bool, priority: int
    ) -> Future[Any]:
        (address,) = workers
        if function is worker_probes.measure_on_device:
            self.measured.append(address)
            if address in self.dying:
                self.workers.pop(address, None)
        if address not in self.workers:
            return Future()
        return self._pool.submit(self._run, address, function, values)

    def worker_state(self) -> WorkerState:
        return self.sites[self._local.address]

    def close(self, timeout: float) -> None:
        for worker_state in self.sites.values():
            worker_probes._probes_of(worker_state)._closing.close()

    def _run(self, address: str, function: Any, values: tuple[Any, ...]) -> Any:
        self._local.address = address
        answer = function(*values)
        if function is worker_probes.list_devices:
            answer["devices"] = [{**d, "name": self.models[address]} for d in answer["devices"]]
        return answer


@pytest.fixture
def cluster_of(tmp_path, monkeypatch):
    """Makes the cluster that `--executor` finds."""
    monkeypatch.setattr(cluster_tuning, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(cluster_tuning, "_GONE_SECONDS", 0.1)
    monkeypatch.setenv("KBUILD_WORKER_PYTHON", sys.executable)

    clusters: list[FakeCluster] = []

    def make(**models: str) -> FakeCluster:
        cluster = FakeCluster(tmp_path / "workers", models)
        clusters.append(cluster)
        monkeypatch.setattr(cluster_tuning, "connect", lambda *_: cluster)
        monkeypatch.setattr(worker_probes, "current_state", cluster.worker_state)
        monkeypatch.setattr(
            worker_probes, "fetch_from_scheduler", lambda _, digest: cluster.data[digest]
        )
        return cluster

    yield make
    for worker_state in (
        worker_state for cluster in clusters for worker_state in cluster.sites.values()
    ):
        worker_state._closing.close()


@pytest.fixture
def tune(kbuild, here):
    write_variant(here / "build" / "v")
    (here / "build.toml").write_text("")

    def run(*argv: str):
        return kbuild("tune", "--variant", "build/v", "--executor", "tls://scheduler", *argv)

    return run


def winners(table: Path) -> list[str]:
    return [row["constants"]["HOW"] for row in json.loads(table.read_text())["rows"]]


@pytest.mark.quick
def test_two_models_have_a_table_each(tune, here, cluster_of):
    cluster = cluster_of(b="Processor B", a="Processor A")
    answer = tune("--device", "processor", "--json")
    assert answer.code == 0, answer.err
    assert [one["device"] for one in answer.json["devices"]] == ["Processor A", "Processor B"]
    assert winners(here / "tuned" / "processor-a.json") == ["fast", "fast"]
    assert winners(here / "tuned" / "processor-b.json") == ["fast", "fast"]
    assert set(cluster.measured) == {"tcp://a", "tcp://b"}
    assert not any(cluster.data.values())  # what was put down for workers is removed
    cluster.measured.clear()
    assert tune("--device", "processor").code == 0
    assert cluster.measured == []


def test_a_worker_that_is_lost_while_it_measures(tune, here, cluster_of):
    cluster = cluster_of(a="Processor", b="Processor")
    cluster.dying.add("tcp://a")
    answer = tune("--device", "processor")
    assert answer.code == 0, answer.err
    assert "a/cpu is out of reach: its worker has gone; other devices measure" in answer.err
    assert winners(here / "tuned" / "processor.json") == ["fast", "fast"]
    assert cluster.measured.count("tcp://a") == 1


def test_the_projects_functions_travel(tune, here, cluster_of):
    text = SECTION.replace("tune = {", 'tune = { reference = "tests.right:scale",')
    write_variant(here / "build" / "v", text)
    (here / "tests").mkdir()
    (here / "tests" / "more.py").write_text("ONE = 1\n")
    right = "from tests.more import ONE\n\ndef scale(x, by):\n    return x * by + ONE\n"
    (here / "tests" / "right.py").write_text(right)
    (here / "secret.txt").write_text("of the user")
    cluster_of(a="Processor")
    assert tune("--device", "processor").code == 0
    assert winners(here / "tuned" / "processor.json") == ["wrong", "wrong"]
    assert not [*(here.parent / "workers").rglob("secret.txt")]


def test_no_gpu(tune, cluster_of):
    cluster_of(a="Processor")
    answer = tune()
    assert answer.code == 4
    assert "no machine of the executor has a GPU" in answer.err
    assert "there is no device `cuda:0`" in tune("--device", "a/cpu", "--device", "0").err
    assert "--python names a file of this machine" in tune("--python", sys.executable).err


def test_a_probe_that_is_idle_ends(tmp_path, monkeypatch):
    """The machine that tunes may have been killed: its process would keep the GPU's memory."""
    monkeypatch.setenv("KBUILD_WORKER_PYTHON", sys.executable)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # other tests use the device as well
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(worker_probes, "_IDLE_SECONDS", 0.3)
    worker_state = WorkerState(tmp_path / "site", 1)
    probes = worker_probes.WorkerProbes(worker_state)
    variant = write_variant(tmp_path / "v")
    settings = {"variant": str(variant), "namespace": "n", "device": "cpu", "root": str(tmp_path)}
    with worker_state._closing, probes._closing:
        (variant / "__init__.py").write_text("raise RuntimeError('no')\n")
        messages = probes.measure("probe", settings, None)
        assert "RuntimeError: no" in messages[0]["unloadable"]
        assert messages[-1]["ended"] == "probe"
        assert probes._probes == {}
        (variant / "__init__.py").write_text("import torch\n")
        job = {"id": "j", "repetition": 0, "choose": "none"}
        assert "error" in probes.measure("probe", {**settings, "namespace": "aten"}, job)[-1]
        assert [*probes._probes] == ["probe"]
        until = time.monotonic() + 20
        while probes._probes and time.monotonic() < until:
            time.sleep(0.05)
        assert probes._probes == {}
