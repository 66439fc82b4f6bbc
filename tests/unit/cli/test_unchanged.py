"""A build with nothing to do is answered from its record, and from nothing that is out of date."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.cli.unchanged import record_build, repeat_build
from kbuild.system import file_state
from kbuild.system.cache_folder import cache_folder
from kbuild.system.code_digest import PACKAGE
from tests.support.git_repository import git
from tests.support.interpreters import make_interpreter

BUILD = ("build", "demo")
VARIANT = "demo/build/torch-cuda"
TICK = 0.05
"""Seconds after which a file's time is another one."""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs, before all others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """kbuild's cache, the same for all tests, as is the interpreter that variants are loaded in."""
    folder = tmp_path_factory.getbasetemp() / "unchanged-cache"
    if not folder.is_dir():
        make_interpreter(folder / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder / "venv"))
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def recorded(kbuild, demo, programs):
    """`demo`, built, and found unchanged once; what was said then."""
    (demo / "CARD.md").write_text("# Demo\n")
    assert "built" in kbuild(*BUILD).err
    time.sleep(TICK)
    return kbuild(*BUILD)


def test_the_same_is_said_again(recorded, kbuild, capsys):
    assert recorded.err.startswith("warning: the card was not filled")
    assert recorded.err.endswith("torch-cuda: up-to-date\n")
    capsys.readouterr()
    assert repeat_build(BUILD) == 0
    assert (0, *capsys.readouterr()) == (recorded.code, recorded.out, recorded.err)
    assert kbuild(*BUILD) == recorded


def test_little_is_imported(recorded, here):
    code = "import sys; from kbuild.__main__ import main; main(sys.argv[1:]); print(*sys.modules)"
    words = [sys.executable, "-c", code, *BUILD]
    environ = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    # The first one asks this interpreter, and the second one is recorded.
    for _ in range(3):
        done = subprocess.run(  # noqa: TID251
            words, cwd=here, env=environ, capture_output=True, text=True, check=True
        )
    names = set(done.stdout.splitlines()[-1].split())
    assert "kbuild.system.record" in names
    assert not names & {"kbuild.cli.dispatch", "argparse", "dataclasses", "pydantic", "subprocess"}


def append(path: str) -> Callable[[Path], object]:
    def edit(here: Path) -> None:
        with (here / path).open("a") as file:
            file.write("\n")

    return edit


def create(path: str) -> Callable[[Path], object]:
    def write(here: Path) -> None:
        (here / path).parent.mkdir(exist_ok=True, parents=True)
        (here / path).write_text("")

    return write


def run_git(*arguments: str) -> Callable[[Path], object]:
    return lambda here: git(here / "demo", *arguments)


def install_torch(here: Path) -> None:
    venv = Path(os.environ["VIRTUAL_ENV"])
    (next(venv.glob("lib/python*/site-packages")) / f"torch-{time.time_ns()}.dist-info").mkdir()


def replace_program(here: Path) -> None:
    (here.parent / "programs" / "python3").symlink_to(sys.executable)


CHANGES = {
    "build.toml": append("demo/build.toml"),
    "a source": append("demo/torch-ext/demo/__init__.py"),
    "a new source": create("demo/torch-ext/demo/more.py"),
    "a source in a new folder": create("demo/torch-ext/demo/inner/more.py"),
    "kbuild.toml": create("demo/kbuild.toml"),
    "an edited output": append(f"{VARIANT}/__init__.py"),
    "an output that is gone": lambda here: (here / VARIANT / "_ops.py").unlink(),
    "a leftover of a killed build": create("demo/build/.torch-cuda.new/file"),
    "the state of the build": lambda here: (here / "demo/.kbuild/torch-cuda/state").unlink(),
    "the card": append("demo/CARD.md"),
    "the filled card": append("demo/build/CARD.md"),
    "results for the card": create("demo/benchmarks/results/one.json"),
    "a repository": run_git("init", "-q"),
    "a repository around it": run_git("init", "-q", ".."),
    "another first program": replace_program,
    "a flake": create("demo/flake.nix"),
    "a package of the interpreter": install_torch,
    "a toolchain": lambda here: (cache_folder(os.environ) / "store" / str(time.time_ns())).mkdir(
        parents=True
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_changed_is_looked_at(recorded, here, change):
    assert repeat_build(BUILD) == 0
    change(here)
    assert repeat_build(BUILD) is None


def test_the_environment_decides(recorded, monkeypatch):
    for name in ("KBUILD_TOOLCHAIN", "CXX", "CUDA_HOME", "SOURCE_DATE_EPOCH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            assert repeat_build(BUILD) is None, name
    monkeypatch.setenv("SSH_TTY", "/dev/pts/7")  # differs between terminals
    assert repeat_build(BUILD) == 0


def test_the_command_line_and_the_folder_decide(recorded, here, monkeypatch):
    assert repeat_build((*BUILD, "-v")) is None
    assert repeat_build(("build", "demo", "--json")) is None
    monkeypatch.chdir(here / "demo")
    assert repeat_build(BUILD) is None


def test_another_kbuild_looks_itself_and_this_one_after_an_hour(recorded, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("kbuild.system.record.package_digest", lambda _: "another")
        assert repeat_build(BUILD) is None
    assert repeat_build(BUILD) == 0
    later = time.time() + 3600
    monkeypatch.setattr("kbuild.system.record.time.time", lambda: later)
    assert repeat_build(BUILD) is None


class TestGit:
    """In a repository, the name of a variant follows from the commit and what is edited."""

    @pytest.fixture
    def committed(self, demo, here, kbuild):
        create("demo/other")(here)
        (demo / ".gitignore").write_text("build\n.kbuild\n")
        run_git("init", "-q")(here)
        run_git("init", "-q", "../library")(here)
        run_git("-C", "../library", "commit", "-q", "--allow-empty", "-m", "one")(here)
        run_git("-c", "protocol.file.allow=always", "submodule", "-q", "add", "../library")(here)
        run_git("add", "-A")(here)
        run_git("commit", "-qm", "one")(here)
        kbuild(*BUILD)
        time.sleep(TICK)
        kbuild(*BUILD)
        assert repeat_build(BUILD) == 0

    @pytest.mark.parametrize(
        "change",
        [
            append("demo/other"),
            lambda here: (here / "demo/other").chmod(0o755),
            run_git("commit", "-q", "--allow-empty", "-m", "two"),
            run_git("checkout", "-qb", "other"),
            run_git("rm", "-q", "--cached", "other"),
            run_git("config", "core.fileMode", "false"),
            run_git("-C", "library", "commit", "-q", "--allow-empty", "-m", "two"),
        ],
        ids=["edited", "mode", "commit", "branch", "index", "setting", "submodule"],
    )
    def test_changes(self, committed, here, change):
        change(here)
        assert repeat_build(BUILD) is None


class TestWhatIsNotRecorded:
    def is_recorded(self, kbuild, demo, *options: str) -> bool:
        (demo / ".kbuild/unchanged").unlink()
        time.sleep(TICK)
        assert kbuild(*BUILD, *options).code == 0
        return (demo / ".kbuild/unchanged").exists()

    def test_a_folder_of_headers(self, recorded, kbuild, demo, tmp_path, monkeypatch):
        monkeypatch.setenv("CUTLASS_SRC_DIR", str(tmp_path))
        assert not self.is_recorded(kbuild, demo)

    def test_answers_of_a_program(self, recorded, kbuild, demo, cache):
        shutil.rmtree(cache / "facts")  # interpreters and compilers are asked again
        assert not self.is_recorded(kbuild, demo)

    def test_a_file_that_was_just_written(self, recorded, demo):
        since = file_state.file_clock()
        (demo / ".kbuild/unchanged").unlink()
        (demo / "torch-ext/demo/__init__.py").write_text("")
        record_build(BUILD, [], demo, cache_folder(os.environ), since)
        assert not (demo / ".kbuild/unchanged").exists()
