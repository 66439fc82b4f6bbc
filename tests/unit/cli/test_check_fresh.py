"""Commands that load kernels do so once, unless asked for more."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kbuild.checks import probe_process
from kbuild.checks.load import NOT_LOADED
from tests.support.interpreters import Interpreter, make_interpreter

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says what a process has mapped"
)


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    """The one that kbuild chooses, with a cache in which nothing is.

    No other folder is searched for modules: whoever writes a file into one makes kbuild ask again.
    """
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    made = make_interpreter(tmp_path / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(made.root))
    return made


@pytest.mark.parametrize("command", ["check-builds", "check"])
def test_what_was_built_elsewhere_has_a_note(kbuild, variant, interpreter, command):
    (variant / "__init__.py").write_text("raise RuntimeError('was run')\n")
    answer = kbuild(command, "demo", "--only", "load", "--json")
    assert answer.code == 0, answer.err
    ((output,),) = [target["outputs"] for target in answer.json["targets"]]
    (finding,) = output["findings"]
    assert (finding["severity"], finding["what"]) == ("info", NOT_LOADED)
    assert "--load" in finding["hint"]
    assert "not loaded: built elsewhere" in answer.err


def test_a_second_build_of_the_same_bytes_loads_nothing_but_reproduce_does(
    kbuild, demo, interpreter, tmp_path, monkeypatch
):
    # nothing written in one remains
    monkeypatch.setattr(probe_process, "BUBBLEWRAP", "no-such-program")
    log = tmp_path / "log"
    log.touch()
    with (demo / "torch-ext" / "demo" / "__init__.py").open("a") as file:
        file.write(f"\nwith open({str(log)!r}, 'a') as file:\n    file.write('loaded ')\n")

    def loaded(command, *options):
        answer = kbuild(command, "demo", *options)
        assert answer.code == 0, answer.err
        return log.read_text().split().count("loaded")

    assert loaded("build", "--variant", "torch-cuda") == 1
    shutil.rmtree(demo / "build")
    shutil.rmtree(demo / ".kbuild")
    assert loaded("build", "--variant", "torch-cuda") == 1
    assert loaded("check", "--only", "load") == 1
    assert loaded("check", "--only", "load", "--fresh") == 2
    assert loaded("reproduce") == 3
