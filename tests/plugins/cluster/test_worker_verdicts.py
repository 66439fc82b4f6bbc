"""What a worker answered counts for the bytes that it was sent, in its own interpreter's name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.checks.base import CHECKS, Finding, Output
from kbuild.checks.load import LoadCheck
from kbuild.checks.metadata_client import MetadataClientCheck
from kbuild.checks.probe_process import ProbeAnswer
from kbuild.plugins.cluster.checks import WorkerVerdict, WorkerVerdicts, questions_of
from tests.support.interpreters import make_interpreter

Make = Callable[..., Output]
HERE = Path(sys.executable)
BY = "worker w0 (Python 3.12.1, Torch 2.99.0)"
FAILED = ProbeAnswer("failed", "RuntimeError: broken", by=BY)


def asked(output: Output) -> list[str]:
    return [question.probe for question in questions_of(output, CHECKS.load())]


def with_verdict(output: Output, answer: ProbeAnswer) -> Output:
    """The output with that answer to what the load check asks first."""
    question, *_ = questions_of(output, [LoadCheck()])
    verdict = WorkerVerdict(answer, "w0", "3.12.1", "2.99.0", remembered=True)
    probe_cache = WorkerVerdicts(python=output.python, verdicts={str(question.subject): verdict})
    return replace(output, probe_cache=probe_cache)


def found(output: Output) -> list[Finding]:
    return list(LoadCheck().run(output))


def test_checks_ask_workers_what_they_ask_this_machine(make: Make, tmp_path: Path) -> None:
    output = make(python=HERE)
    assert asked(output) == ["load_probe", "metadata_probe"]
    assert asked(replace(output, built_elsewhere=frozenset({output.root}))) == ["metadata_probe"]
    assert asked(replace(output, python=None)) == []
    assert asked(replace(output, alone=output.root / "x.so")) == []
    assert asked(replace(output, other_pythons=(tmp_path / "other",))) == [
        *("load_probe", "metadata_probe")
    ]
    (output.root / "link").symlink_to(tmp_path, target_is_directory=True)
    assert asked(output) == ["metadata_probe"]  # nobody can say what its bytes are


def test_questions_are_the_same_in_another_place_and_for_another_interpreter(
    make: Make, tmp_path: Path
) -> None:
    output = make(python=HERE)
    before = [question.subject for question in questions_of(output, CHECKS.load())]
    moved = output.root.rename(tmp_path / "moved")
    other = replace(output, root=moved, python=tmp_path / "python")
    assert [question.subject for question in questions_of(other, CHECKS.load())] == before
    (moved / "__init__.py").write_text("changed = True\n")
    after = [question.subject for question in questions_of(other, CHECKS.load())]
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_findings_name_the_worker(make: Make) -> None:
    output = with_verdict(make(python=HERE), FAILED)
    (finding,) = found(output)
    assert finding.severity == "error"
    assert finding.what == f"on {BY}: cannot be loaded:\nRuntimeError: broken"
    assert LoadCheck().facts(output) == {
        "worker": {"worker": "w0", "python": "3.12.1", "torch": "2.99.0", "remembered": True}
    }


@pytest.mark.parametrize("change", ["bytes", "interpreter"])
def test_the_answer_counts_for_nothing_else(make: Make, tmp_path: Path, change: str) -> None:
    python = make_interpreter(tmp_path / "venv").python
    output = with_verdict(make(python=python), FAILED)
    if change == "bytes":
        (output.root / "__init__.py").write_text("changed = True\n")
    else:
        # `--also-python` names an interpreter of this machine.
        output = replace(output, python=make_interpreter(tmp_path / "other").python)
    assert found(output) == []
    assert "worker" not in LoadCheck().facts(output)


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_worker_without_a_sandbox_is_reported(make: Make, sandboxed: bool) -> None:
    loaded = ProbeAnswer("loaded", "", sandboxed=sandboxed, by=BY)
    output = with_verdict(make(python=HERE), loaded)
    foreign = replace(output, built_elsewhere=frozenset({output.root}), loads_foreign=True)
    assert ["without a sandbox" in finding.what for finding in found(foreign)] == (
        [] if sandboxed else [True]
    )


def test_the_client_of_a_worker_is_named(make: Make) -> None:
    output = make(python=HERE)
    (question,) = questions_of(output, [MetadataClientCheck()])
    refused = WorkerVerdict(ProbeAnswer("refused", "kernels 9: no", by=BY), "w0", "", "")
    probe_cache = WorkerVerdicts(python=HERE, verdicts={str(question.subject): refused})
    (finding,) = MetadataClientCheck().run(replace(output, probe_cache=probe_cache))
    assert finding.what == f"the client on {BY} rejects it: kernels 9: no"
