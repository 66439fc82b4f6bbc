"""A build with nothing to do starts at once: what only others need is imported by them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kbuild.system.processes import LocalRunner

ASK = """
import sys
import kbuild.pipeline.build
import kbuild.cli.build
print(*sorted(sys.modules))
"""


def test_a_build_imports_late() -> None:
    path = os.pathsep.join(filter(None, sys.path))
    done = LocalRunner().run([sys.executable, "-c", ASK], env=os.environ | {"PYTHONPATH": path})
    assert "kbuild.pipeline.build" in done.output.split(), done.output
    late = ("kbuild.checks", "kbuild.publish.card", "jinja2")
    assert not [name for name in done.output.split() if name.startswith(late)]


CHECK = """
import sys
from kbuild.__main__ import main
code = main(["check", sys.argv[1]])
print(code, *sorted(sys.modules))
"""
PROJECT = {
    "build.toml": '[general]\nname = "demo"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
    'backends = ["cpu"]\n\n[torch]\nsrc = ["torch-ext/binding.cpp"]\n\n'
    '[kernel.cpu]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["cpu.cpp"]\n',
    "torch-ext/demo/__init__.py": "__all__ = ['one']\none = 1\n",
    "torch-ext/binding.cpp": "",
    "cpu.cpp": "",
}


def test_checks_of_outputs_are_imported_for_outputs(tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = os.pathsep.join(filter(None, sys.path))
    environ = os.environ | {"PYTHONPATH": path, "KBUILD_CACHE_DIR": str(tmp_path / "cache")}
    done = LocalRunner().run([sys.executable, "-c", CHECK, str(tmp_path)], env=environ)
    code, *modules = done.output.splitlines()[-1].split()
    assert code == "0", done.output
    assert "kbuild.checks.report" in modules
    assert not {"kbuild.checks.manylinux", "kbuild.checks.load", "kbuild.ops.section"} & {*modules}
