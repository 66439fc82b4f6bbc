"""Running command lines in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbuild.__main__ import main

MINIMAL = """\
[general]
name = "demo"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch-noarch]
"""


@dataclass(frozen=True)
class Answer:
    """What a command line led to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kbuild(capsys: pytest.CaptureFixture[str], here: Path) -> Callable[..., Answer]:
    """`kbuild("check-config", "demo")`, called from `here`."""

    def run(*argv: str) -> Answer:
        capsys.readouterr()
        code = main([str(part) for part in argv])
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def demo(here: Path) -> Path:
    """A valid Python-only project in `here/demo`."""
    package = here / "demo" / "torch-ext" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Demo."""\n\n__all__ = ["one"]\n\none = 1\n')
    (here / "demo" / "build.toml").write_text(MINIMAL)
    return here / "demo"


@pytest.fixture
def variant(demo: Path) -> Path:
    """`demo` with one built variant."""
    folder = demo / "build" / "torch-cuda"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("one = 1\n")
    (folder / "_ops.py").write_text("")
    metadata = {
        "name": "demo",
        "id": "_demo_cuda_1a2b3c4",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
        "of-a-later-kbuild": True,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    return folder
