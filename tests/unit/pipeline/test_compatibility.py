"""The answers of the `kernels` client on what it can load here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbuild.pipeline.compatibility import VariantCompatibility, check_compatibility
from kbuild.system.processes import ProcessResult

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"


class FixedRunner:
    """A runner whose probes all give the same answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = json.dumps(answer)

    def run(self, argv: Any, *, stdin: str, inherit: Sequence[int], **_: Any) -> ProcessResult:
        self.argv = tuple(map(str, argv))
        line = f'={{"started": true}}\n>{stdin.strip()} {self.answer}\n={{"ended": 0}}\n'
        os.write(inherit[0], line.encode())
        return ProcessResult(self.argv, 0, "", 0.0)


def test_the_client_decides() -> None:
    refused = {CUDA: "no CUDA"}
    runner = FixedRunner({"state": "ok", "reason": "", "chosen": CPU, "refused": refused})
    answer = check_compatibility((CPU, CUDA), Path("python"), runner)  # type: ignore[arg-type]
    assert runner.argv[runner.argv.index("fit_probe") + 1 :] == (CPU, CUDA)
    assert answer == VariantCompatibility(CPU, refused)


def test_no_client() -> None:
    runner = FixedRunner({"state": "absent", "reason": "No module named 'kernels'"})
    answer = check_compatibility((CPU,), Path("python"), runner)  # type: ignore[arg-type]
    assert answer.chosen is None
    assert answer.unknown == "the kernels client cannot be asked: No module named 'kernels'"
