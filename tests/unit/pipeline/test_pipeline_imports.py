"""A build with nothing to do starts at once: what only others need is imported by them."""

from __future__ import annotations

import os
import sys

import pytest

from kbuild.runtime.processes import LocalRunner

ASK = """
import sys
import kbuild.pipeline.build
import kbuild.cli.build
print(*sorted(sys.modules))
"""


@pytest.mark.parametrize(
    "part", ["kbuild.checks", "kbuild.card", "jinja2", "kbuild.toolchains.experimental.debian_hip"]
)
def test_a_build_imports_late(part: str) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    done = LocalRunner().run([sys.executable, "-c", ASK], env=os.environ | {"PYTHONPATH": path})
    assert "kbuild.pipeline.build" in done.output.split(), done.output
    assert not [name for name in done.output.split() if name.startswith(part)]
