"""What has to stay free of Nix."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.projects import BINDING, kernel, write_project

SCRIPT = """
import sys
from kbuild.__main__ import main
code = main(sys.argv[1:])
loaded = sorted(name for name in sys.modules if name.startswith("kbuild.pipeline.nix"))
print(code, loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words", [("list-variants",), ("plan", "--no-toolchain", "--json"), ("check-config",)]
)
def test_looking_needs_no_nix(tmp_path, words):
    root = write_project(tmp_path, BINDING, kernel("cpu"))
    (root / "flake.nix").write_text("{ kbuild = 1; }\n")
    command = (sys.executable, "-c", SCRIPT, *words, str(root))
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: TID251
    assert done.stderr.splitlines()[-1] == "0 []"


def test_a_build_by_nix_loads_no_toolchain(tmp_path):
    script = (
        "import sys, kbuild.pipeline.nix_build; print([n for n in sys.modules if 'wheels' in n])"
    )
    command = (sys.executable, "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: TID251
    assert done.stdout.strip() == "[]"
