"""What the operating system refuses, for real where it can be had, and the words for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kbuild.system.errors import StorageError
from kbuild.system.files import FileSet, replace_atomically
from kbuild.system.os_errors import errors_about, explain_os_error, system_refusal_in


def provoked(act) -> StorageError:
    with pytest.raises(OSError) as raised:  # noqa: PT011 - of whatever number
        act()
    error = explain_os_error(raised.value)
    assert isinstance(error, StorageError)
    assert error.hint
    return error


def test_a_file_where_a_folder_belongs(tmp_path):
    (tmp_path / "build").write_text("mine")
    place = tmp_path / "build" / "variant" / "file"
    for act in (
        lambda: replace_atomically(place, b""),
        lambda: place.parent.mkdir(parents=True),
        lambda: place.write_bytes(b""),
        lambda: FileSet({"build/variant/file": ""}).write(tmp_path),
    ):
        words = provoked(act).message
        assert words == f"`{tmp_path / 'build'}`: a file is where a folder belongs"
    assert (tmp_path / "build").read_text() == "mine"


def test_a_folder_where_a_file_belongs(tmp_path):
    (tmp_path / "card").mkdir()
    words = f"`{tmp_path / 'card'}`: a folder is where a file belongs"
    assert provoked(lambda: replace_atomically(tmp_path / "card", b"")).message == words
    assert provoked((tmp_path / "card").read_bytes).message == words
    assert os.listdir(tmp_path) == ["card"]  # noqa: PTH208 - the draft is gone


def test_a_name_that_is_too_long(tmp_path):
    place = tmp_path / ("x" * 5000)
    error = provoked(lambda: replace_atomically(place, b""))
    assert "xxx...xxx" in error.message
    assert error.message.endswith("the name is too long for the file system")
    assert len(error.message) < 500


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_no_space_names_the_file_and_its_file_system():
    def write() -> None:
        with errors_about("/dev/full"), Path("/dev/full").open("w") as file:
            file.write("x")

    error = provoked(write)
    assert error.message == "`/dev/full`: no space is left on the file system at `/dev`"
    assert "free some space" in error.hint


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EDQUOT, "disk quota"),
        (errno.EFBIG, "larger than is allowed"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.EPERM, "not permitted"),
        (errno.EMFILE, "too many files open"),
        (errno.EIO, "reports an error"),
        (errno.EAGAIN, "no further process"),
    ],
)
def test_what_cannot_be_provoked_everywhere(tmp_path, number, words):
    error = explain_os_error(OSError(number, os.strerror(number), str(tmp_path / "it")))
    assert error is not None
    assert str(tmp_path / "it") in error.message
    assert words in error.message
    nameless = explain_os_error(OSError(number, os.strerror(number)))
    assert nameless is not None
    assert words in nameless.message
    assert "?" not in nameless.message


def test_no_folder_for_temporary_files(monkeypatch):
    words = "No usable temporary directory found in ['/nowhere']"
    error = explain_os_error(FileNotFoundError(errno.ENOENT, words))
    assert error is not None
    assert error.message == "there is no folder for temporary files"
    assert "set TMPDIR" in error.hint


def test_a_full_file_system_is_found_for_an_error_without_a_name(tmp_path, monkeypatch):
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    error = explain_os_error(OSError(errno.ENOSPC, "full"), [tmp_path])
    assert error is not None
    assert error.message.startswith(f"`{tmp_path}`: no space is left")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cc1plus: fatal error: writing: No space left on device", "no space is left"),
        ("as: a.o: Disk quota exceeded", "disk quota"),
        ("g++: internal compiler error: File size limit exceeded signal terminated", "larger"),
        ("ld: cannot open output file: Read-only file system", "read-only"),
    ],
)
def test_compilers_that_were_refused_something(tmp_path, line, words):
    found = system_refusal_in(["[1/2] Building", line], tmp_path)
    assert found is not None
    assert words in found[0]
    assert system_refusal_in(["a.cpp:1: error: expected `;`"], tmp_path) is None
