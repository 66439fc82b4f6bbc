"""Reports of tests: what pytest wrote, and one document for many variants."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from kbuild.pipeline.testing import (
    ProjectTests,
    TestProcess,
    TestReport,
    join_junit,
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


def test_a_run_without_a_report_is_an_error_in_the_joined_one() -> None:
    good = TestReport("good", 0, "", 0.5, parse_junit(SUITE.encode()), "w0")
    crashed = TestReport("crashed", -11, "before\x00after", 1.0, None, "w1")
    empty = TestReport("empty", 5, "", 1.0, ET.Element("testsuite", {"tests": "0"}))
    root = ET.fromstring(join_junit([good, crashed, empty]))  # noqa: S314
    named = {suite.get("name"): suite for suite in root}
    assert [named[name].get("hostname") for name in ("good", "crashed", "empty")] == [
        *("w0", "w1", None)
    ]
    assert (root.get("tests"), root.get("errors")) == ("6", "3")
    error = named["crashed"].find("testcase/error")
    assert error is not None
    assert (error.get("message"), error.text) == ("pytest ended with -11", "before?after")


def test_untested_variants_are_skipped_suites_with_the_reasons() -> None:
    good = TestReport("good", 0, "", 0.5, parse_junit(SUITE.encode()), "w0")
    reasons = ["worker w0: no GPU", "worker w1: \x00Torch 2.1"]
    root = ET.fromstring(join_junit([good], {"other": reasons}))  # noqa: S314
    suite = {suite.get("name"): suite for suite in root}["other"]
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped", "hostname")]
    assert counts == ["1", "0", "0", "1", None]
    skipped = suite.find("testcase/skipped")
    assert skipped is not None
    assert skipped.get("message") == "no worker fits it"
    assert skipped.text == "worker w0: no GPU\nworker w1: ?Torch 2.1"
    assert (root.get("tests"), root.get("skipped")) == ("5", "2")


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
