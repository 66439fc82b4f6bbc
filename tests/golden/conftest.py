"""The `golden` fixture: text compared with a file; `--update-golden` writes the file instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str, str], None]
FILES = Path(__file__).parent / "files"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("cuda/CMakeLists.txt", text)`: the text is what the file says."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        path = FILES / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"no golden file {path}; run pytest with --update-golden"
        assert text == path.read_text()

    return compare
