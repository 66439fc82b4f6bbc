from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import kbuild.toolchains.wheels.settings as module
from kbuild.system.processes import LocalRunner, ProcessResult
from kbuild.toolchains.wheels.settings import IndexSettings, pip_settings, settings_from

LISTING = """\
:env:.cert='/etc/ca.pem'
:env:.index-url='https://user:secret@env.example.invalid/simple'
debug.verbose='1'
download.timeout='5'
freeze.index-url='https://freeze.example.invalid/simple'
global.extra-index-url='https://a.example.invalid/simple\\nfile:///srv/simple'
global.find-links='/srv/wheels /srv/more'
global.index-url='https://global.example.invalid/simple'
global.timeout='100'
install.trusted-host='a.example.invalid b.example.invalid'
"""


class Pip:
    """A pip that answers, or is not there."""

    def __init__(self, output: str, code: int = 0) -> None:
        self.output, self.code = output, code

    def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        assert tuple(argv[-2:]) == ("config", "list")
        return ProcessResult(tuple(argv), self.code, self.output, 0.0)


def test_later_sections_win() -> None:
    assert settings_from(LISTING) == IndexSettings(
        index_url="https://user:secret@env.example.invalid/simple",
        extra_index_urls=("https://a.example.invalid/simple", "file:///srv/simple"),
        find_links=("/srv/wheels", "/srv/more"),
        trusted_hosts=("a.example.invalid", "b.example.invalid"),
        cert="/etc/ca.pem",
    )


def test_environment_without_pip() -> None:
    environ: Mapping[str, str] = {
        "PIP_INDEX_URL": "https://a.example.invalid/simple",
        "PIP_EXTRA_INDEX_URL": "https://b.example.invalid/simple",
        "PIP_NO_INDEX": "",
        "HOME": "/root",
    }
    assert pip_settings(Pip("No module named pip\n", 1), environ) == IndexSettings(
        index_url="https://a.example.invalid/simple",
        extra_index_urls=("https://b.example.invalid/simple",),
    )


def test_what_pip_says() -> None:
    found = pip_settings(Pip("global.proxy='http://proxy.example.invalid:3128'\n"), {})
    assert found == IndexSettings(proxy="http://proxy.example.invalid:3128")


def test_environment_of_uv_without_pip() -> None:
    environ: Mapping[str, str] = {
        "UV_DEFAULT_INDEX": "https://a.example.invalid/simple",
        "UV_INDEX": "own=https://b.example.invalid/simple https://c.example.invalid/simple",
        "UV_FIND_LINKS": "/srv/wheels,/srv/more",
    }
    assert pip_settings(Pip("No module named pip\n", 1), environ) == IndexSettings(
        index_url="https://a.example.invalid/simple",
        extra_index_urls=("https://b.example.invalid/simple", "https://c.example.invalid/simple"),
        find_links=("/srv/wheels", "/srv/more"),
    )


def test_what_a_project_calls_pip_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m pip` would take it from the current folder."""
    for name in ("pip", "runpy"):
        (tmp_path / f"{name}.py").write_text("open('was-run', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": os.defpath, "PIP_INDEX_URL": "https://a.example.invalid/simple"}
    assert pip_settings(LocalRunner(), environ).index_url == environ["PIP_INDEX_URL"]
    assert not (tmp_path / "was-run").exists()


def test_an_empty_value_hides_no_other() -> None:
    found = settings_from(":env:.index-url=''\nglobal.index-url='https://a.invalid/simple'\n")
    assert found.index_url == "https://a.invalid/simple"


@pytest.fixture
def configuration(tmp_path: Path) -> dict[str, str]:
    """An environment with a file that holds what a `pip.conf` can, and pip obeys when it lists."""
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://user:p%40ss@a.example.invalid/simple\nretries = 9\n"
        "quiet = 3\nuser = true\nrequire-virtualenv = true\nconstraint = /nowhere/c.txt\n"
        f"target = /nowhere\nprefix = /nowhere\nlog = {tmp_path}/log/pip.log\n"
    )
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PIP_")}
    return kept | {"PIP_CONFIG_FILE": str(file)}


def test_a_configuration_cannot_hide_itself(configuration, tmp_path) -> None:
    found = pip_settings(LocalRunner(), configuration)
    assert found.index_url == "https://user:p%40ss@a.example.invalid/simple"
    assert found.retries == 9
    assert not (tmp_path / "log").exists()


def test_pip_with_the_variables_reads_nothing_else(configuration) -> None:
    variables = pip_settings(LocalRunner(), configuration).variables
    pip = (sys.executable, "-m", "pip", "config", "list")
    done = subprocess.run(  # noqa: TID251
        pip, env=configuration | variables, capture_output=True, text=True, check=True
    )
    listed = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert ":env:.index-url" in listed
    assert all(name.startswith(":env:.") for name in listed)
    assert not {":env:.constraint", ":env:.target"} & listed


class TestScript:
    """As builders run it, which have no kbuild."""

    def run(self, listing: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-I", "-S", str(module.__file__))
        return subprocess.run(  # noqa: TID251
            argv, input=listing, capture_output=True, text=True, check=False
        )

    def test_a_file_that_is_not_lent_is_named(self) -> None:
        done = self.run("global.cert='/nowhere/ca.pem'\n")
        assert done.returncode == 1
        assert "pip's cert, /nowhere/ca.pem, does not exist" in done.stderr
        assert "extra-sandbox-paths" in done.stderr
