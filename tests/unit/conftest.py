from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from projects import write_project

from kbuild.project import Project, open_project


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Project]:
    """Write and open a small project: `project(section, ..., backends=("cpu", "cuda"))`."""

    def make(*parts: str, backends: tuple[str, ...] = ("cpu",)) -> Project:
        return open_project(write_project(tmp_path / "project", *parts, backends=backends))

    return make
