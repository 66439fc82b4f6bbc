"""Kernels in Python DSLs whose sources change while they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.build.compile import Compilation
from kbuild.system.errors import BuildError
from kbuild.system.file_state import identify

SOURCE, TABLE = "kernel/scaled.py", "tuned/scaled.json"


@pytest.fixture
def compile_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Compiles; meanwhile the source is saved so many times, once in each attempt."""
    for path in (SOURCE, TABLE):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text("0")
    made: list[str] = []

    def run(saves: int) -> Any:
        def produce(*_: object) -> str:
            made.append((tmp_path / SOURCE).read_text())
            if len(made) <= saves:
                (tmp_path / SOURCE).write_text(str(len(made)))
            return made[-1]

        monkeypatch.setattr("kbuild.dsl.aot_build.build_aot_kernels", produce)
        kernels = [SimpleNamespace(sources=[SOURCE], tables=[TABLE])]
        compilation = SimpleNamespace(
            plan=SimpleNamespace(aot=kernels),
            aot_compiler=object(),
            space=SimpleNamespace(project=tmp_path),
            tell=None,
            note=None,
        )
        produced, inputs = Compilation._produce(compilation)  # type: ignore[arg-type]
        now = {path: identify(tmp_path / path) for path in (SOURCE, TABLE)}
        assert {path: look and look[4] for path, look in inputs.items()} == {
            path: look and look[4] for path, look in now.items()
        }
        return produced

    return run


def test_a_save_meanwhile_compiles_them_again(compile_it: Callable[[int], Any]) -> None:
    assert compile_it(1) == "1"


def test_a_save_in_each_attempt_ends_the_build(compile_it: Callable[[int], Any]) -> None:
    with pytest.raises(BuildError, match=f"`{SOURCE}` changed each time that it was built"):
        compile_it(2)
