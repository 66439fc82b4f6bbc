"""A type check sees what a build would see: the same macros, folders and standard as CMake's."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.backends.base import TypeCheck
from kbuild.generate.project import generate
from kbuild.plan import BINDING, Component, Source
from kbuild.static.types import IncludeFolders, compiler_arguments
from kbuild.toolchains import build_tools
from tests.support.command_project import run
from tests.support.plans import plan_of

VARIANT = "torch213-cxx11-cpu-x86_64-linux"
pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler: apt install g++"),
]


def parsed(words: Sequence[str]) -> dict[str, list[str]]:
    """What decides how a unit is parsed: macros in no order, folders in theirs."""
    pairs = list(zip(words, [*words[1:], ""], strict=True))
    return {
        "macros": sorted(word for word in words if re.match(r"-[DU]", word)),
        "own": [word[2:] for word in words if word.startswith("-I")],
        "system": [following for word, following in pairs if word == "-isystem"],
        "standard": [word for word in words if word.startswith("-std=")],
    }


@pytest.mark.skipif(sys.platform != "linux", reason="compares with a Linux variant")
def test_the_same_as_cmake(tmp_path: Path) -> None:
    project, generated, torch, python = (tmp_path / name for name in ("k", "g", "t", "p"))
    made = replace(
        plan_of(VARIANT),
        components=(
            Component(
                BINDING,
                (Source("torch-ext/b.cpp", "CXX"),),
                include=("src",),
                definitions=("OPS=_x", 'TEXT="a b"'),
                depends=("torch",),
            ),
            Component(
                "other",
                (Source("src/o.cpp", "CXX"), Source("src/o.h", None)),
                flags=(("CXX", ("-DOWN=1", "-funroll-loops")),),
            ),
        ),
        libraries=(),
        files=(),
    )
    for path in ("k/torch-ext/b.cpp", "k/src/o.cpp", "k/src/o.h", "t/x.h", "t/api/x.h", "p/x.h"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    generate(made).write(generated)
    facts = {
        "CMAKE_MAKE_PROGRAM": build_tools.ninja(),
        "KBUILD_SOURCE_DIR": project,
        "KBUILD_VARIANT": VARIANT,
        "KBUILD_PYTHON": sys.executable,
        "KBUILD_PYTHON_INCLUDE_DIR": python,
        "KBUILD_TORCH_VERSION": "2.13.0",
        "KBUILD_TORCH_INCLUDE_DIRS": f"{torch};{torch / 'api'}",
        "KBUILD_TORCH_CXX11_ABI": "1",
    }
    entries = tuple(f"-D{name}={value}" for name, value in facts.items())
    cmake = str(build_tools.cmake())
    done = run(
        (cmake, "-G", "Ninja", "-S", str(generated), "-B", str(tmp_path / "tree"), *entries),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    commands = json.loads((tmp_path / "tree" / "compile_commands.json").read_text())
    theirs = {Path(c["file"]).name: parsed(shlex.split(c["command"])) for c in commands}

    folders = IncludeFolders(
        project, generated, Path("/stand-ins"), python, {"torch": (torch, torch / "api")}
    )
    for part in made.components:
        own = parsed(compiler_arguments(made, part, TypeCheck(), folders))
        assert own["system"].pop() == "/stand-ins"
        assert own == theirs[Path(part.compiled[0].path).name]
