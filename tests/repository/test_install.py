"""`install.sh` and `.ci/run`: which way is taken, and that nothing foreign is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = '#!/bin/sh\necho "$(basename "$0") $*" >> "$HOME/calls"\n'
UV = FAKE + '[ "$*" = "tool dir --bin" ] && echo "$HOME/bin"; exit 0\n'

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path):
    program(tmp_path / "bin" / "kbuild", "#!/bin/sh\necho kbuild 0\n")
    return tmp_path


@pytest.fixture
def install(home):
    def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: TID251
            ["sh", str(ROOT / "install.sh"), *argv],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(home), "PATH": f"{home}/tools:/usr/bin:/bin"}
            | {"KBUILD_PYTHON": sys.executable}
            | env,
        )

    return run


def calls(home: Path) -> str:
    return (home / "calls").read_text()


def test_uv_comes_first(install, home):
    program(home / "tools" / "uv", UV)
    program(home / "tools" / "pipx", FAKE)
    done = install("--from", "a-spec")
    assert done.returncode == 0, done.stderr
    assert f"--python {sys.executable} a-spec" in calls(home)
    assert "pipx" not in calls(home)


def test_pipx_comes_next(install, home):
    program(home / "tools" / "pipx", FAKE)
    done = install("--from=a-spec", PIPX_BIN_DIR=f"{home}/bin", KBUILD_INSTALLER="pipx")
    assert done.returncode == 0, done.stderr
    assert f"pipx install --quiet --force --python {sys.executable} a-spec" in calls(home)


def test_the_checkout_is_the_default(install, home):
    program(home / "tools" / "uv", UV)
    assert f"installing kbuild from {ROOT} with uv" in install().stderr


def test_a_dry_run_changes_nothing(install, home):
    done = install("--dry-run", "--from", "a-spec", KBUILD_INSTALLER="venv")
    assert done.returncode == 0, done.stderr
    for step in ("-m venv", "-m pip install --quiet --disable-pip-version-check a-spec", "ln -sfn"):
        assert step in done.stderr
    assert {path.name for path in home.iterdir()} == {"bin"}


def test_an_old_python(install, home):
    program(home / "old", '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8; exit 1\n')
    done = install(KBUILD_PYTHON=f"{home}/old")
    assert done.returncode == 1
    assert "Python 3.8 is too old" in done.stderr


def test_a_foreign_folder_stays(install, home):
    (home / ".local" / "share" / "kbuild").mkdir(parents=True)
    done = install(KBUILD_INSTALLER="venv")
    assert done.returncode == 1
    assert "this script did not make it" in done.stderr
    assert install("--uninstall").returncode == 0
    assert (home / ".local" / "share" / "kbuild").is_dir()


@pytest.mark.parametrize(("shell", "script"), [("sh", "install.sh"), ("bash", ".ci/run")])
def test_scripts_parse(shell, script):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n", str(ROOT / script)], check=True)  # noqa: TID251
    assert os.access(ROOT / script, os.X_OK)
