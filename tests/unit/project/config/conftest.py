"""A project on disk from a build.toml, and what kbuild says about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError, Problem

Say = Callable[..., tuple[Problem, ...]]
PACKAGE = {"torch-ext/relu/__init__.py": '__all__ = ["relu"]\n'}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes `build.toml` and other files; the current folder is the project's."""
    monkeypatch.chdir(tmp_path)

    def write(text: str | bytes, files: Mapping[str, str] = PACKAGE) -> Path:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "build.toml").write_bytes(data)
        return tmp_path

    return write


@pytest.fixture
def say(project: Callable[..., Path]) -> Say:
    """The problems of a project, warnings included."""

    def problems(text: str | bytes, files: Mapping[str, str] = PACKAGE) -> tuple[Problem, ...]:
        root = project(text, files)
        try:
            return open_project(root).warnings
        except ConfigError as error:
            return error.problems

    return problems


@pytest.fixture
def said(say: Say) -> Callable[..., str]:
    """The problems as text, without the lines of the file."""

    def text(*args: object, **kwargs: object) -> str:
        return "\n".join(str(replace(problem, source="")) for problem in say(*args, **kwargs))

    return text
