"""nvcc's threads: as many as there are tokens and memory, and none of them lost."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbuild.build.unit.command import CompileCommand
from kbuild.build.unit.compiler import (
    JobserverTokens,
    is_jobserver_client,
    jobserver_pipe,
    most_threads,
)
from kbuild.system.budget import JobServer, start_jobserver
from kbuild.system.unit_settings import LauncherSettings
from tests.support.unit_launches import UnitRun

ARCHS = tuple(f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 86, 89, 90))
# Notes its words, leaves a file where it was told to, and how many tokens are left meanwhile.
NVCC = """
import os, sys
from pathlib import Path
words = [word for word in sys.argv if word.startswith(("--threads", "--jobserver", "--keep"))]
keep = next(word.partition("=")[2] for word in words if word.startswith("--keep-dir"))
Path(keep, "unit.ptx").touch()
fifo = os.environ.get("MAKEFLAGS", "").partition("fifo:")[2]
left = "-"
if fifo:
    pipe = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        left = os.read(pipe, 99)
    except BlockingIOError:
        left = b""
    os.write(pipe, left)
    left = len(left)
with open(os.environ["FAKE_STARTS"], "a") as file:
    file.write(" ".join([w for w in words if "keep" not in w] + [f"left={left}", keep]) + "\\n")
after = lambda flag: sys.argv[sys.argv.index(flag) + 1]
Path(after("-o")).write_text("object")
Path(after("-MF")).write_text(f"{after('-o')}: {after('-c')}\\n")
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[JobServer]:
    (tmp_path / "served").mkdir()
    with start_jobserver(tmp_path / "served", 3) as server:
        yield server


@pytest.mark.parametrize(
    ("versions", "flags", "jobs", "said"),
    [
        ("c++=12;nvcc=13.0.88", (), 8, ["--threads=4", "--jobserver", "left=3"]),
        ("c++=12;cuda=13.0", (), 2, ["--threads=2", "--jobserver", "left=3"]),
        ("c++=12;cuda=13.0", ("--threads", "3"), 8, ["--threads=3", "--jobserver", "left=3"]),
        ("c++=12;cuda=13.2.86", (), 8, ["--threads=4", "left=0"]),  # its code would be another one
        ("c++=12;cuda=12.8", (), 8, ["--threads=4", "left=0"]),
        ("c++=12;cuda=12.8", ("-t=2",), 8, ["--threads=2", "left=2"]),
        ("c++=12;cuda=12.8", ("-t=1",), 8, ["left=3"]),
        ("c++=12", (), 8, ["--threads=4", "left=0"]),
    ],
)
def test_who_takes_the_tokens(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: JobServer,
    versions: str,
    flags: tuple[str, ...],
    jobs: int,
    said: list[str],
) -> None:
    monkeypatch.setenv("MAKEFLAGS", server.environment["MAKEFLAGS"])
    bench = UnitRun(tmp_path, memory=50000, jobs=jobs, compilers=versions)
    *words, keep = launch(bench, *flags)
    assert words == said
    assert keep.startswith(str(tmp_path / "run"))
    assert not Path(keep).exists()
    assert server.drain() == 3  # none is lost
    (unit,) = bench.log.units
    assert (unit.archs, unit.weight) == (4, 3072)
    assert unit.threads == max([1, *(int(word[-1]) for word in said if "threads" in word)])


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_object_is_the_same_with_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: JobServer
) -> None:
    monkeypatch.setenv("MAKEFLAGS", server.environment["MAKEFLAGS"])
    text = "__global__ void k(float *x) { *x += 1; }\nvoid go(float *x) { k<<<1, 1>>>(x); }\n"
    objects = set()
    for jobs in (1, 3):
        bench = UnitRun(tmp_path, memory=50000, jobs=jobs, compilers="nvcc=13.0", keeps=False)
        bench.write("a.cu", text + "static int first = [] { return 1; }();\n")
        flags = (*ARCHS[1:], "-std=c++17", f"-Xcompiler=-ffile-prefix-map={tmp_path}=/x")
        outputs = ("-MD", "-MF", "a.d", "-o", "a.o", "-c", str(bench.project / "a.cu"))
        process = bench.start("nvcc", *flags, *outputs, tree=f"tree{jobs}", language="CUDA")
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        objects.add((tmp_path / f"tree{jobs}" / "a.o").read_bytes())
    assert [unit.threads for unit in bench.log.units] == [1, 3]
    assert len(objects) == 1
    assert server.drain() == 3


def launch(bench: UnitRun, *flags: str) -> list[str]:
    """What the fake nvcc wrote down."""
    nvcc = bench.root / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!{sys.executable} -IS\n{NVCC}")
    nvcc.chmod(0o755)
    bench.write("a.cu", "code\n")
    command = (str(nvcc), *ARCHS, *bench.command("a.cu", *flags)[1:])
    process = bench.start(*command, language="CUDA")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return (bench.root / "starts").read_text().split()


def test_a_token_is_lent_while_a_unit_waits_for_another(server: JobServer) -> None:
    tokens = JobserverTokens(str(server.path))
    assert server.drain() == 3  # all are taken, one of them by this unit
    seen = []

    def wait() -> None:
        seen.append(server.drain())
        threading.Timer(0.3, server.release).start()

    tokens.lend(wait, lambda: False)
    assert seen == [1]
    assert server.drain() == 0  # it has one again


def test_nobody_to_ask() -> None:
    assert jobserver_pipe({}) == jobserver_pipe({"MAKEFLAGS": " -j8 --jobserver-auth=3,4"}) == ""
    tokens = JobserverTokens("")
    assert tokens.take(4) == 0
    with ExitStack() as waited:
        tokens.lend(waited.close, lambda: False)
    settings = LauncherSettings(run="/r", cache="", memory=1, jobs=4)
    command = CompileCommand(["nvcc", *ARCHS, "-c", "a.cu", "-o", "a.o"], "CUDA", "/p")
    assert most_threads(command, settings, {}) == 1
    served = {"MAKEFLAGS": "--jobserver-auth=fifo:/f"}
    assert most_threads(command, settings, served) == 4
    settings.tool = "ccache"
    assert most_threads(command, settings, served) == 1
    assert not is_jobserver_client(settings)


def test_another_cache_gets_nvcc_without_a_folder_of_its_own(tmp_path: Path) -> None:
    # sccache starts nvcc's steps in a folder that lacks those of the object's path.
    seen = tmp_path / "seen"
    tool = tmp_path / "sccache"
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    tool.chmod(0o755)
    bench = UnitRun(tmp_path, tool=str(tool))
    bench.write("a.cu", "")
    outputs = ("-MD", "-MF", "a.d", "-o", "a.o", "-c", str(bench.project / "a.cu"))
    process = bench.start("nvcc", *ARCHS, "--objdir-as-tempdir", *outputs, language="CUDA")
    process.communicate()
    assert seen.read_text().split() == ["nvcc", *ARCHS, *outputs]


def test_threads_that_outlive_the_run_put_nothing_anywhere(tmp_path: Path) -> None:
    """By then, the pipe's number may be that of another file."""
    failures: list[BaseException] = []
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        over = threading.Event()

        def work(server: JobServer, over: threading.Event = over) -> None:
            try:
                while not over.is_set():
                    server.release()
                    server.drain()
                server.release()
            except BaseException as failure:  # noqa: BLE001 - asserted on below
                failures.append(failure)

        with start_jobserver(folder, 2) as server:
            threads = [threading.Thread(target=work, args=(server,)) for _ in range(3)]
            for thread in threads:
                thread.start()
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []
