"""What the system refuses, for real: full disks, small limits, read-only folders, no home."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_project import ROOT, CommandProject
from tests.support.tiny_project import write_tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts of Linux")


@pytest.fixture
def bench(tmp_path: Path) -> CommandProject:
    return write_tiny(tmp_path, "cpu")


def shell(bench: CommandProject, script: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """The script, in which `kbuild` is the command."""
    kbuild = f'kbuild() {{ {shlex.quote(sys.executable)} -m kbuild "$@"; }}; export -f kbuild\n'
    return subprocess.run(  # noqa: TID251
        ("bash", "-c", kbuild + script),
        cwd=bench.root,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(bench.cache),
            "PYTHONPATH": str(ROOT),
            "KBUILD_TOOLCHAIN": "host",
            "PYTHONDONTWRITEBYTECODE": "1",  # Python keeps half of a file that may not grow
            "KBUILD_CACHE_DIR": str(bench.cache),
            **changes,
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    yield folder
    subprocess.run(("umount", "-l", str(folder)), check=True)  # noqa: TID251


def fill(folder: Path) -> None:
    """Take all the room."""
    room = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        file.write(b"x" * (room.f_bavail * room.f_frsize))


def test_a_full_disk(disk: Path, bench: CommandProject) -> None:
    shutil.copytree(bench.root, disk / "tiny", ignore=shutil.ignore_patterns(".git"))
    full = CommandProject(disk / "tiny", bench.cache)
    fill(disk)
    done = shell(full, "kbuild create-pyproject")
    assert done.returncode == 12, done.stderr
    assert f"no space is left on the file system at `{disk}`" in done.stderr
    assert "free some space there" in done.stderr
    assert sorted(path.name for path in full.root.iterdir()) == [
        *(".gitignore", "build.toml", "cpu", "torch-ext")
    ]


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_a_disk_that_fills_up_while_compilers_write(disk: Path, bench: CommandProject) -> None:
    compiler = bench.cache / "filling-c++"
    filling = f"""#!/bin/sh
case "$*" in
  *quiet.cpp) cat /dev/zero > {disk}/filler 2> /dev/null;;
esac
exec {shutil.which("c++")} "$@"
"""
    compiler.write_text(filling)
    compiler.chmod(0o755)
    shutil.copytree(bench.root, disk / "tiny", ignore=shutil.ignore_patterns(".git"))
    full = CommandProject(disk / "tiny", bench.cache)
    done = shell(full, "kbuild build -j 1", CXX=str(compiler), KBUILD_CACHE="off")
    assert done.returncode in (5, 12), done.stderr
    assert f"no space is left on the file system at `{disk}`" in done.stderr
    assert "free some space there" in done.stderr
    assert "bug in kbuild" not in done.stderr
    assert not (full.root / "build").exists()
    (disk / "filler").unlink()
    again = shell(full, "kbuild build -j 1", KBUILD_CACHE="off")
    assert again.returncode == 0, again.stderr


def test_files_that_may_not_grow(bench: CommandProject) -> None:
    done = shell(bench, "ulimit -f 2 && kbuild create-pyproject")
    assert done.returncode == 12, done.stderr
    assert "the file would be larger than is allowed here" in done.stderr
    assert "ulimit -f" in done.stderr


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_read_only_file_system(bench: CommandProject) -> None:
    mount = 'mount --bind . . && mount -o remount,ro,bind . && cd "$PWD" || exit 99'
    inner = shlex.quote(f"{mount}; kbuild create-pyproject")
    done = shell(bench, f"unshare -m bash -c {inner}")
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    assert done.returncode == 12, done.stderr
    assert f"error: `{bench.root}/" in done.stderr
    assert "the file system is read-only there" in done.stderr


@pytest.mark.parametrize("stream", [">", "2>"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_streams_that_are_full(bench: CommandProject, stream: str) -> None:
    done = shell(bench, f"kbuild list-variants {stream} /dev/full")
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if stream == ">":
        assert done.returncode == 12
        assert "standard output: no space is left" in done.stderr
    else:
        assert done.returncode == 0


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(bench: CommandProject, closing: str) -> None:
    assert shell(bench, f"kbuild list-variants {closing}").returncode == 0
    assert shell(bench, f"kbuild bild {closing}").returncode == 2


def test_a_folder_that_was_deleted(bench: CommandProject) -> None:
    done = shell(bench, 'mkdir gone && cd gone && rmdir "$PWD" && kbuild plan')
    assert done.returncode == 12, done.stderr
    assert "the current folder no longer exists" in done.stderr
