"""Which interpreter kernels are built against and loaded with, and how it gets packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbuild.toolchains import host
from kbuild.toolchains.host import choose_python, install_command

MARKS = ["uv-receipt.toml", "pipx_metadata.json", "../.made-by-install.sh"]


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of kbuild, `tool/venv`, and `bin/python3` on PATH; none has Torch."""
    for name in ("tool/venv/bin/python3", "bin/python3"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "tool/venv/bin/python3"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "tool/venv"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(host, "interpreter_facts", lambda python, *_: {"is": python, "torch": None})
    return tmp_path


def test_the_interpreter_that_runs_kbuild_is_built_against(environments):
    assert choose_python(None, None, None)["is"] == environments / "tool/venv/bin/python3"


@pytest.mark.parametrize("mark", MARKS)
def test_unless_its_environment_is_for_kbuild_alone(environments, mark, monkeypatch):
    (environments / "tool/venv" / mark).touch()
    assert choose_python(None, None, None)["is"] == environments / "bin/python3"
    monkeypatch.setenv("PATH", "")
    assert choose_python(None, None, None)["is"] == environments / "tool/venv/bin/python3"


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ([], "{python} -m pip install torch"),
        (["pyvenv.cfg", "site/pip/"], "{python} -m pip install torch"),
        (["pyvenv.cfg"], "uv pip install --python {python} torch"),
        (
            ["lib/python3.12/EXTERNALLY-MANAGED"],
            "{python} -m venv .venv && . .venv/bin/activate && pip install torch",
        ),
        (
            ["pyvenv.cfg", "site/pip/", "lib/python3.12/EXTERNALLY-MANAGED"],
            "{python} -m pip install torch",
        ),
    ],
)
def test_the_command_that_installs_a_package(tmp_path, files, command):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    python = str(tmp_path / "bin" / "python3")
    facts = {"executable": python, "version": "3.12.4", "purelib": str(tmp_path / "site")}
    assert install_command({"python": facts}, "torch") == command.format(python=python)
