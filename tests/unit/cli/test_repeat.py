"""A build with nothing to do is answered from its record, and from nothing that is out of date."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbuild.cli.repeat import Recording, repeated
from kbuild.code_digest import PACKAGE
from kbuild.record import read_record
from kbuild.runtime import file_state
from tests.support import list_looks
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
    folder = tmp_path_factory.getbasetemp() / "repeat-cache"
    if not folder.is_dir():
        make_interpreter(folder / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder / "venv"))
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(folder))
    monkeypatch.delenv("KBUILD_DRIVER", raising=False)
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
    assert repeated(BUILD) == 0
    assert (0, *capsys.readouterr()) == (recorded.code, recorded.out, recorded.err)
    assert kbuild(*BUILD) == recorded


def test_little_is_imported(recorded, here):
    code = "import sys; from kbuild.__main__ import main; main(sys.argv[1:]); print(*sys.modules)"
    words = [sys.executable, "-c", code, *BUILD]
    environ = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    # The first one is another command line for kbuild: its output is no terminal's, nor pytest's.
    for _ in range(2):
        done = subprocess.run(  # noqa: TID251
            words, cwd=here, env=environ, capture_output=True, text=True, check=True
        )
    names = set(done.stdout.splitlines()[-1].split())
    assert "kbuild.record" in names
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
    "the state of the build": lambda here: (here / "demo/.kbuild/torch-cuda/state.json").unlink(),
    "the card": append("demo/CARD.md"),
    "the filled card": append("demo/build/CARD.md"),
    "results for the card": create("demo/benchmarks/results/one.json"),
    "a repository": run_git("init", "-q"),
    "a repository around it": run_git("init", "-q", ".."),
    "another first program": replace_program,
    "a flake": create("demo/flake.nix"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_changed_is_looked_at(recorded, here, change):
    assert repeated(BUILD) == 0
    change(here)
    assert repeated(BUILD) is None


@pytest.mark.parametrize("name", ["KBUILD_TOOLCHAIN", "CXX", "CUDA_HOME", "SOURCE_DATE_EPOCH"])
def test_the_environment_decides(recorded, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert repeated(BUILD) is None


def test_what_differs_between_terminals_does_not(recorded, monkeypatch):
    monkeypatch.setenv("SSH_TTY", "/dev/pts/7")
    assert repeated(BUILD) == 0


def test_the_command_line_and_the_folder_decide(recorded, here, monkeypatch):
    assert repeated((*BUILD, "-v")) is None
    assert repeated(("plan", "demo")) is None
    assert repeated(("check-config", "demo")) is None
    monkeypatch.chdir(here / "demo")
    assert repeated(BUILD) is None


def test_another_kbuild_looks_itself(recorded, monkeypatch):
    monkeypatch.setattr("kbuild.record.package_digest", lambda _: "another")
    assert repeated(BUILD) is None


def test_after_a_day_the_command_runs(recorded, monkeypatch):
    day = time.time() + 86_400
    monkeypatch.setattr("kbuild.record.time.time", lambda: day)
    assert repeated(BUILD) is None


class TestGit:
    """In a repository, the name of a variant follows from the commit and what is edited."""

    @pytest.fixture
    def committed(self, demo, here, kbuild):
        create("demo/other")(here)
        (demo / ".gitignore").write_text("build\n.kbuild\n")
        run_git("init", "-q")(here)
        run_git("add", "-A")(here)
        run_git("commit", "-qm", "one")(here)
        kbuild(*BUILD)
        time.sleep(TICK)
        kbuild(*BUILD)
        assert repeated(BUILD) == 0

    @pytest.mark.parametrize(
        "change",
        [
            append("demo/other"),
            lambda here: (here / "demo/other").chmod(0o755),
            run_git("commit", "-q", "--allow-empty", "-m", "two"),
            run_git("checkout", "-qb", "other"),
            run_git("rm", "-q", "--cached", "other"),
            run_git("config", "core.fileMode", "false"),
        ],
        ids=["edited", "mode", "commit", "branch", "index", "setting"],
    )
    def test_changes(self, committed, here, change):
        change(here)
        assert repeated(BUILD) is None


def test_a_plan_is_kept_too(recorded, kbuild, capsys):
    planned = kbuild("plan", "demo")
    assert repeated(("plan", "demo")) == 0
    assert capsys.readouterr() == (planned.out, planned.err)


def test_nothing_is_written_to_a_project_that_was_never_built(kbuild, demo):
    assert kbuild("plan", "demo").code == 0
    assert not (demo / ".kbuild").exists()


@pytest.mark.parametrize("command", ["build", "plan", "list-variants"])
def test_every_look_is_noted(recorded, here, demo, cache, command):
    """Whoever adds a look to these commands learns here that it has to be noted."""
    listed = here / "looks.json"
    words = [sys.executable, list_looks.__file__, str(listed), command, "demo"]
    for _ in range(2):
        for record in (demo / ".kbuild/repeat").iterdir():
            record.unlink()
        environ = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
        subprocess.run(words, cwd=here, env=environ, check=True)  # noqa: TID251
    [path] = (demo / ".kbuild/repeat").iterdir()
    noted = read_record(path).observed
    elsewhere = (
        PACKAGE,  # is in the digest, with templates and libraries
        PACKAGE.parent / "templates",
        *map(Path, sysconfig.get_paths().values()),
        Path(sys.base_prefix),
        cache / "installed",  # kbuild's own digest
        cache / "objects",  # whose owner is asked for each time
        cache / "store",
        demo / ".kbuild/repeat",
        Path(os.devnull),
        Path(os.environ.get("TMPDIR") or "/tmp") / f"kbuild-{os.getuid()}",  # noqa: S108
    )
    missing = [
        path
        for path in map(Path, json.loads(listed.read_text()))
        if str(path) not in noted
        and path not in {cache, demo / ".kbuild"}
        and not any(path.is_relative_to(folder) for folder in elsewhere)
        # Folders above, which are read to resolve links.
        and not any(Path(other).is_relative_to(path) for other in noted)
        # Records that are not there, below arguments; programs that are not in a folder of PATH.
        and "repeat" not in path.parts
        and (path.exists() or str(path.parent) not in noted)
    ]
    assert missing == []


class TestRecording:
    @pytest.fixture
    def source(self, tmp_path):
        source = tmp_path / "source"
        source.write_text("")
        time.sleep(TICK)
        return source

    def kept(self, root: Path, recording: Recording) -> bool:
        (root / ".kbuild").mkdir(exist_ok=True)
        recording.keep(root, root / "cache")
        return (root / ".kbuild/repeat").is_dir()

    def test_what_was_looked_at_decides(self, tmp_path, source):
        recording = Recording(BUILD, [("out", "text")])
        file_state.note_look(source, tmp_path / "absent")
        assert self.kept(tmp_path, recording)

    @pytest.mark.parametrize("name", ["source", "absent"])
    def test_what_changed_meanwhile_is_not_kept(self, tmp_path, source, name):
        recording = Recording(BUILD, [("out", "text")])
        file_state.note_look(source, tmp_path / "absent")
        (tmp_path / name).write_text("edited")
        assert not self.kept(tmp_path, recording)

    def test_what_was_put_back_meanwhile_is_not_kept(self, tmp_path, source):
        status = source.stat()
        recording = Recording(BUILD, [("out", "text")])
        source.write_text("")
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
        file_state.note_look(source)
        assert not self.kept(tmp_path, recording)

    def test_what_is_no_file_is_not_kept(self, tmp_path):
        recording = Recording(BUILD, [("out", "text")])
        file_state.note_gap("the weather")
        assert not self.kept(tmp_path, recording)

    def test_what_will_change_is_kept_until_then(self, tmp_path):
        recording = Recording(BUILD, [("out", "text")])
        file_state.note_expiry(time.time() + 60)
        assert self.kept(tmp_path, recording)
        [path] = (tmp_path / ".kbuild/repeat").iterdir()
        assert read_record(path).until <= time.time() + 60

    def test_the_oldest_go(self, tmp_path, monkeypatch):
        for number in range(20):
            monkeypatch.setenv("NUMBER", str(number))
            assert self.kept(tmp_path, Recording(BUILD, [("out", "text")]))
        assert len([*(tmp_path / ".kbuild/repeat").iterdir()]) == 16


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format": 1}', b"\xff"])
def test_a_damaged_record_is_none(recorded, demo, content):
    for record in (demo / ".kbuild/repeat").iterdir():
        record.write_bytes(content)
    assert repeated(BUILD) is None
