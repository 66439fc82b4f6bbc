from __future__ import annotations

from pathlib import Path

from kbuild.run import interpreter_name


def test_an_interpreter_has_one_name(tmp_path: Path) -> None:
    real = tmp_path / "python3.11"
    real.write_text("")
    (tmp_path / "python").symlink_to(real)
    assert interpreter_name(real) == tmp_path / "python"
    (tmp_path / "python3").symlink_to("python")
    names = {interpreter_name(tmp_path / name) for name in ("python", "python3", "python3.11")}
    assert names == {tmp_path / "python3"}


def test_another_interpreter_beside_it_is_another(tmp_path: Path) -> None:
    for name in ("python3", "python3.9"):
        (tmp_path / name).write_text(name)
    assert interpreter_name(tmp_path / "python3.9") == tmp_path / "python3.9"
    assert interpreter_name(tmp_path / "gone") == tmp_path / "gone"
