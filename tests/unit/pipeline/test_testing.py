"""What pytest reports of tests, and the variant that they import."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbuild.pipeline.testing import ProjectTests, TestProcess
from kbuild.system.processes import LocalRunner


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
