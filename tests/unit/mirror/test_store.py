"""Addresses of mirrors, and their secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.errors import ToolchainError, UsageError, install_command
from kbuild.hub.repository import AccessDeniedError, BusyError, NotFoundError, Repo
from kbuild.mirror import open_mirror
from kbuild.mirror.fsspec_store import translate_store_error
from kbuild.mirror.layout import repo_of_folder, version_paths
from kbuild.mirror.store import parse_mirror_address, without_credentials

HERE = Path("/home/me/here")
SECRET = "canary-5f2b"  # noqa: S105
SECRET_URLS = (
    f"sftp://me:{SECRET}@host/kernels",
    f"sftp://me:p@{SECRET}@host/kernels",
    f"s3://bucket/kernels?secret={SECRET}",
    f"https://host/kernels?sig={SECRET}#part",
)


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("mirror", "/home/me/here/mirror"),
        ("../mirror/", "/home/me/mirror"),
        ("/srv/kernels", "/srv/kernels"),
        ("file:///srv/my%20kernels", "/srv/my kernels"),
        ("file://localhost/srv", "/srv"),
    ],
)
def test_folders(text: str, folder: str) -> None:
    address = parse_mirror_address(text, HERE)
    assert address.folder == Path(folder)
    assert address.shown == folder


def test_another_machines_files() -> None:
    with pytest.raises(UsageError, match="another machine"):
        parse_mirror_address("file://server/srv", HERE)


@pytest.mark.parametrize("url", SECRET_URLS)
def test_secrets_are_not_shown(url: str) -> None:
    address = parse_mirror_address(url, HERE)
    assert address.shown.partition("://")[2] in ("host/kernels", "bucket/kernels")
    said = address.without_secrets(f"cannot open {url}: bad {SECRET} for {url.upper()[:4]}")
    for text in (address.shown, said, repr(address), str(address)):
        assert SECRET not in text


@pytest.mark.parametrize("url", SECRET_URLS)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError, NotFoundError),
        (PermissionError, AccessDeniedError),
        (TimeoutError, BusyError),
        (NotImplementedError, UsageError),
        (RuntimeError, Exception),
    ],
)
def test_nor_in_errors(url: str, error: type[Exception], kind: type[Exception]) -> None:
    told = translate_store_error(
        error(f"{url} {SECRET}"), parse_mirror_address(url, HERE), "for `x`"
    )
    assert isinstance(told, kind)
    assert SECRET not in f"{told} {told.hint} {told.to_json()}"


class Answered(Exception):  # noqa: N818
    def __init__(self, status: int) -> None:
        super().__init__("said")
        self.status = status


class Botocore(Exception):  # noqa: N818
    def __init__(self, status: int) -> None:
        super().__init__("said")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize("kind", [Answered, Botocore])
@pytest.mark.parametrize(
    ("status", "wanted"),
    [(403, AccessDeniedError), (404, NotFoundError), (429, BusyError), (503, BusyError)],
)
def test_statuses(kind: type[Exception], status: int, wanted: type[Exception]) -> None:
    """Also when a driver has put an `OSError` around them."""
    address = parse_mirror_address("s3://bucket", HERE)
    assert isinstance(translate_store_error(kind(status), address, "for `x`"), wanted)
    around = OSError(5, "said")
    around.__cause__ = kind(status)
    assert isinstance(translate_store_error(around, address, "for `x`"), wanted)


def test_a_full_disk_is_no_matter_of_patience() -> None:
    import errno

    error = OSError(errno.ENOSPC, "full")
    assert not isinstance(
        translate_store_error(error, parse_mirror_address("sftp://h/x", HERE), "for `x`"), BusyError
    )


def test_unknown_kinds_and_missing_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    with pytest.raises(UsageError, match="no driver can open"):
        open_mirror(parse_mirror_address(f"nonsense://{SECRET}@x/y", HERE))
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ToolchainError, match="needs a driver") as raised:
        open_mirror(parse_mirror_address("gs://bucket/x", HERE))
    assert "gcsfs" in raised.value.hint
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ToolchainError) as raised:
        open_mirror(parse_mirror_address("memory://x", HERE))
    assert raised.value.hint == install_command("fsspec")


def test_without_credentials() -> None:
    assert without_credentials("s3://bucket/a@b/") == "s3://bucket/a@b"
    assert without_credentials("sftp://u@h:22/x?y=1#z") == "sftp://h:22/x"


@pytest.mark.parametrize("branch", ["", "..", "a/../b", "/v1", "v1/", ".hidden", "a b", "-x"])
def test_branches_that_cannot_be_files(branch: str) -> None:
    with pytest.raises(UsageError):
        version_paths(Repo("org/relu"), branch)


def test_names() -> None:
    place = version_paths(Repo("org/my-relu"), "try/v1")
    assert place.ref == "kernels--org--my-relu/refs/try/v1"
    assert place.target("a") == "../../../kernels--org--my-relu/snapshots/a"
    assert repo_of_folder("kernels--org--my-relu") == Repo("org/my-relu")
    assert repo_of_folder("models--org--relu") is None
    assert repo_of_folder("kernels--org") is None
