"""What pytest reports of tests, and the variant that they import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbuild.pipeline.testing import (
    ProjectTests,
    TestProcess,
    TestReport,
    parse_junit,
)
from kbuild.system.processes import LocalRunner

SUITE = (
    '<testsuites><testsuite name="pytest" tests="4" failures="1" errors="1" skipped="1" time="0.5">'
    '<testcase name="a"/></testsuite></testsuites>'
)


def test_errors_count_as_failures() -> None:
    report = TestReport("v", 1, "FAILED a\nERROR b\nother", 0.5, parse_junit(SUITE.encode()))
    assert report.counts == {"passed": 1, "failed": 2, "skipped": 1}
    assert report.failures == ["FAILED a", "ERROR b"]


def test_what_is_no_report_is_none() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aa">]><testsuite/>'
    negative = b'<testsuite tests="-1"/>'
    for data in (b"", b"<a", b"<testsuites/>", b'<testsuite tests="x"/>', bomb, negative):
        assert parse_junit(data) is None


def test_the_fixture_and_the_option_of_the_plugin_give_the_built_variant(tmp_path: Path) -> None:
    """Without kbuild in the interpreter, and without another build where it is there."""
    variant, project = tmp_path / "variant", tmp_path / "project"
    variant.mkdir()
    (variant / "__init__.py").write_text("NUMBER = 7\n")
    (project / "tests").mkdir(parents=True)
    (project / "pytest.ini").write_text("[pytest]\naddopts = --kbuild=.\n")
    text = "def test_it(kernel):\n    assert kernel.NUMBER == 7\n"
    (project / "tests" / "test_it.py").write_text(text)
    process = TestProcess(LocalRunner(), Path(sys.executable), os.environ)
    done = process.run(ProjectTests("tiny", "org/tiny"), project, variant, variant)
    assert done.ok, done.output
