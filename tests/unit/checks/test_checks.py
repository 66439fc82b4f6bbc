"""The registry of checks, and all of them together on good variants."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.checks import Output
from kbuild.checks.base import run_checks
from kbuild.system.processes import LocalRunner


def test_a_good_python_only_variant_has_no_findings(noarch: Callable[..., Output]) -> None:
    assert run_checks(noarch({"x.py": "from . import _ops\n"}), slow=False) == ()


@pytest.mark.torch
def test_slow_checks_on_a_good_variant(noarch: Callable[..., Output]) -> None:
    pytest.importorskip("kernels")
    assert run_checks(noarch(python=Path(sys.executable))) == ()


@pytest.mark.compile
def test_a_good_compiled_variant_has_no_findings(compiled: Callable[..., Output]) -> None:
    found = run_checks(compiled(), slow=False)
    assert [finding for finding in found if finding.severity != "info"] == []


PLUGIN = """
from kbuild.checks.base import CHECKS, Check, Finding

@CHECKS.add
class Third(Check):
    name = "third-party"
    summary = "A check of somebody else's."

    def run(self, output):
        yield Finding(self.name, "info", ".", "was here")
"""
ASK = """
import sys
from pathlib import Path
from kbuild.checks.base import Output, run_checks
print([f.what for f in run_checks(Output(Path(sys.argv[1]), None), slow=False)])
"""


def test_a_check_of_another_distribution_takes_part(tmp_path: Path) -> None:
    info = tmp_path / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kbuild.checks]\nthird = plug_checks\n")
    (tmp_path / "plug_checks.py").write_text(PLUGIN)
    (tmp_path / "variant").mkdir()
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    argv = [sys.executable, "-c", ASK, str(tmp_path / "variant")]
    done = LocalRunner().run(argv, env=os.environ | {"PYTHONPATH": path})
    assert "was here" in done.output


def test_an_empty_folder_breaks_no_check(tmp_path: Path) -> None:
    found = run_checks(Output(tmp_path, None), slow=True)
    assert {finding.check for finding in found} == {"layout", "load"}
