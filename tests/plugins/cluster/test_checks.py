"""Questions travel to a worker with their files, and answers about anything else are discarded."""

from __future__ import annotations

import json
import platform
from base64 import b64decode
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.checks.base import CHECKS, Output
from kbuild.checks.probe_cache import ProbeCache
from kbuild.plugins.cluster.checks import (
    OutputQuestions,
    WorkerVerdicts,
    ask_workers,
    parse_verdicts,
    questions_of,
)
from kbuild.plugins.cluster.devices import WorkerRuntime
from kbuild.plugins.cluster.jobs import FileArchive, unpack_archive
from kbuild.plugins.cluster.tests import VariantRuns
from kbuild.plugins.cluster.worker_runs import answer_questions
from kbuild.project.variant import Variant
from kbuild.system.errors import DamagedFileError
from kbuild.system.processes import LocalRunner
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from kbuild.system.unit_executor import UnitResult, WorkUnit
from tests.support.interpreters import Interpreter, make_interpreter

NAME = f"torch213-cxx11-cpu-{platform.machine()}-linux"
FACTS = {"name": "demo", "id": "_demo_1", "version": 1, "license": "MIT", "python-depends": []}


@dataclass
class FakeScheduler:
    """What was put down for workers."""

    files: dict[str, bytes] = field(default_factory=dict)

    def publish(self, digest: str, data: bytes) -> None:
        self.files[digest] = data


@dataclass
class FakeWorker:
    """A worker without a cluster."""

    folder: Path
    scheduler: FakeScheduler = field(default_factory=FakeScheduler)

    def __post_init__(self) -> None:
        self.interpreter: Interpreter = make_interpreter(self.folder / "venv")

    def answer(self, unit: WorkUnit) -> dict[str, Any]:
        job = json.loads(self.scheduler.files[unit.job])
        folders = {}
        for name, digest in job["archives"].items():
            folders[name] = self.folder / "projects" / digest
            unpack_archive(FileArchive(digest, self.scheduler.files[digest]), folders[name])
        python = str(self.interpreter.python)
        runtime = WorkerRuntime(python, "3.12.1", "2.13.0+cpu", "1.0", False, ())
        request = {**job, "folders": folders, "runs_on": runtime.to_json()}
        return answer_questions(request, self.folder / "cache")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return FakeWorker(tmp_path / "worker")


def batch_of(tmp_path: Path, text: str, name: str = NAME, **facts: Any) -> OutputQuestions:
    """The questions about a variant whose `__init__.py` has that text."""
    root = tmp_path / "build" / name
    root.mkdir(parents=True, exist_ok=True)
    (root / "__init__.py").write_text(text)
    metadata = {**FACTS, "backend": {"type": "cpu"}, **facts}
    (root / "metadata.json").write_text(json.dumps(metadata))
    output = Output(root, Variant.parse(name), tmp_path / "python-of-head")
    return OutputQuestions(name, questions_of(output, CHECKS.load()))


def unit_of(batch: OutputQuestions, worker: FakeWorker, *, fresh: bool = False) -> WorkUnit:
    services = Services(LocalRunner(), Ui(), worker.folder, worker.folder)
    return batch.unit(VariantRuns(worker.scheduler, services), fresh=fresh)  # type: ignore[arg-type]


def result_of(unit: WorkUnit, answer: dict[str, Any]) -> UnitResult:
    outputs = {name: b64decode(part) for name, part in answer["outputs"].items()}
    return UnitResult(unit, outputs, "w0")


def test_a_worker_answers_the_questions_of_the_checks(tmp_path: Path, worker: FakeWorker) -> None:
    batch = batch_of(tmp_path, "import torch\nassert torch.__version__ == '2.13.0+cpu'\n")
    unit = unit_of(batch, worker)
    for remembered in (False, True):
        verdicts = parse_verdicts(result_of(unit, worker.answer(unit)), batch.subjects)
        assert set(verdicts) == batch.subjects
        states = [verdicts[str(question.subject)].answer.state for question in batch.questions]
        assert states == ["loaded", "ok"]
        assert [verdict.remembered for verdict in verdicts.values()] == [remembered] * 2
        for verdict in verdicts.values():
            assert verdict.answer.by == "worker w0 (Python 3.12.1, Torch 2.13.0+cpu)"
    unit = unit_of(batch, worker, fresh=True)
    verdicts = parse_verdicts(result_of(unit, worker.answer(unit)), batch.subjects)
    assert not any(verdict.remembered for verdict in verdicts.values())


def test_files_of_a_variant_travel_once(tmp_path: Path, worker: FakeWorker) -> None:
    batch = batch_of(tmp_path, "")
    archives = json.loads(worker.scheduler.files[unit_of(batch, worker).job])["archives"]
    assert len(archives) == 1
    alone = replace(batch, questions=batch.questions[1:])
    (digest,) = json.loads(worker.scheduler.files[unit_of(alone, worker).job])["archives"].values()
    unpack_archive(FileArchive(digest, worker.scheduler.files[digest]), tmp_path / "sent")
    assert [path.name for path in (tmp_path / "sent").iterdir()] == ["metadata.json"]


def test_a_failure_is_an_answer_without_paths_of_the_worker(
    tmp_path: Path, worker: FakeWorker
) -> None:
    batch = batch_of(tmp_path, "raise RuntimeError('broken')\n")
    unit = unit_of(batch, worker)
    verdicts = parse_verdicts(result_of(unit, worker.answer(unit)), batch.subjects)
    answer = verdicts[str(batch.questions[0].subject)].answer
    assert answer.state == "failed"
    assert "RuntimeError: broken" in answer.reason
    assert "kbuild-" not in answer.reason


@pytest.mark.parametrize(
    ("name", "facts", "reason"),
    [
        (NAME.replace("213", "299"), {}, "Torch version (2.99) does not match"),
        ("torch213-cpu-aarch64-darwin", {}, "this machine is"),
        (NAME, {"python-depends": ["einops"]}, "has no einops"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, worker: FakeWorker, name: str, facts: dict[str, Any], reason: str
) -> None:
    answer = worker.answer(unit_of(batch_of(tmp_path, "", name, **facts), worker))
    assert set(answer) == {"refusal"}
    assert reason in answer["refusal"]


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("ImportError('libcuda.so.1: cannot open shared object file')", True),
        ("ImportError('undefined symbol: _Z1fv')", False),
    ],
)
def test_a_worker_without_a_driver_is_no_fault_of_the_variant(
    tmp_path: Path, worker: FakeWorker, error: str, refused: bool
) -> None:
    version = worker.interpreter.packages / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    name, backend = NAME.replace("cpu", "cu130"), {"type": "cuda"}
    answer = worker.answer(
        unit_of(batch_of(tmp_path, f"raise {error}\n", name, backend=backend), worker)
    )
    assert set(answer) == ({"refusal"} if refused else {"outputs"})
    if refused:
        assert "finds no GPU for CUDA: ImportError: libcuda.so.1" in answer["refusal"]


def test_metadata_is_left_to_who_has_the_client(tmp_path: Path, worker: FakeWorker) -> None:
    (worker.interpreter.packages / "kernels" / "__init__.py").unlink()
    (worker.interpreter.packages / "kernels").rmdir()
    batch = batch_of(tmp_path, "")
    unit = unit_of(batch, worker)
    verdicts = parse_verdicts(result_of(unit, worker.answer(unit)), batch.subjects)
    assert set(verdicts) == {batch.questions[0].subject}
    alone = replace(batch, questions=batch.questions[1:])
    assert "client" in worker.answer(unit_of(alone, worker))["refusal"]


def test_answers_about_other_bytes_are_discarded(tmp_path: Path, worker: FakeWorker) -> None:
    batch = batch_of(tmp_path, "")
    unit = unit_of(batch, worker)
    answer = worker.answer(unit)
    other = batch_of(tmp_path, "changed = True\n")
    with pytest.raises(DamagedFileError, match="other files than were sent"):
        parse_verdicts(result_of(unit, answer), other.subjects)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"python": "", "torch": "", "answers": [{}]}'])
def test_what_is_no_answer_is_discarded(data: bytes) -> None:
    result = UnitResult(WorkUnit("k", "v", "k"), {"result": data}, "w0")
    with pytest.raises(DamagedFileError):
        parse_verdicts(result, frozenset({"x"}))


def test_without_a_cluster_everything_is_left_to_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("kbuild.plugins.cluster.connect._CONNECT_SECONDS", 0.3)
    batch_of(tmp_path, "")
    root = tmp_path / "build" / NAME
    output = Output(root, Variant.parse(NAME), tmp_path / "python-of-head")
    services, probe_cache = Services(LocalRunner(), Ui(), tmp_path, tmp_path), ProbeCache(tmp_path)
    answered = ask_workers("tcp://127.0.0.1:1", [output], CHECKS.load(), probe_cache, services)
    assert answered is probe_cache
    assert not isinstance(answered, WorkerVerdicts)
    assert "does not answer" in (said := capsys.readouterr().err)
    assert "this machine checks everything" in said
