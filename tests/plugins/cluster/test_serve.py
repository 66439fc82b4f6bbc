"""What the command lines of schedulers and workers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plugins.cluster.connect import connect, security_of, write_credentials
from kbuild.plugins.cluster.serve import (
    ClusterRequest,
    RemoteHost,
    _start_workers,
    parse_processors,
    read_hosts,
    split_processors,
    worker_folder,
)
from kbuild.plugins.cluster.worker import passed_environment
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.processes import LocalRunner


def test_processors() -> None:
    assert parse_processors("0,2-4") == (0, 2, 3, 4)
    for text in ("", "a", "1-", "-1", "1,,2"):
        with pytest.raises(UsageError, match="no list of processors"):
            parse_processors(text)


@pytest.mark.parametrize(("workers", "count"), [(1, 4), (2, 4), (3, 8), (4, 4)])
def test_workers_share_no_processor(workers: int, count: int) -> None:
    shares = split_processors(workers, range(count))
    assert sorted(number for share in shares for number in share) == list(range(count))
    assert len(shares) == workers
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_hosts(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# machines\nbuild1\n\nbuild2 /opt/python  # new\n")
    assert read_hosts(file) == (
        RemoteHost("build1", "python3"),
        RemoteHost("build2", "/opt/python"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [("a b c\n", "hosts:1: `a b c`"), ("\n-oProxyCommand=x\n", "hosts:2"), ("#\n", "no host")],
)
def test_hosts_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_hosts(file)


def test_each_worker_has_a_folder_of_its_own(tmp_path: Path) -> None:
    with worker_folder(tmp_path) as first, worker_folder(tmp_path) as second:
        assert first != second
    with worker_folder(tmp_path) as third:
        assert third == first


def test_workers_are_started_with_the_interpreter_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def watch(runner: LocalRunner, command: Sequence[str], *rest: object, **named: object) -> None:
        commands.append(list(command))

    monkeypatch.setattr("kbuild.plugins.cluster.serve._watch", watch)
    credentials = tmp_path / "credentials.pem"
    credentials.write_text("secret")
    hosts = (RemoteHost("build1", "python3"),)
    request = ClusterRequest("127.0.0.1", 0, tmp_path, credentials, 1, hosts)
    asked = replace(request, python="/opt/my torch/bin/python")
    for each in (asked, request):
        _start_workers(each, "tls://h:1", LocalRunner(), print)
    local, ssh, *without = commands
    assert local[-2:] == ["--python", "/opt/my torch/bin/python"]
    assert ssh[-1].endswith(" --python '/opt/my torch/bin/python'")  # a shell reads it there
    assert not any("--python" in " ".join(command) for command in without)


def test_compilers_see_no_token() -> None:
    environ = {"PATH": "/bin", "CPATH": "/x", "PIP_INDEX_URL": "u", "HF_TOKEN": "t", "AWS_KEY": "k"}
    assert set(passed_environment(environ)) == {"PATH", "CPATH", "PIP_INDEX_URL"}


class TestConnecting:
    @pytest.fixture(autouse=True)
    def need_dask(self) -> None:
        pytest.importorskip("distributed")

    def test_credentials_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        file = tmp_path / "cluster" / "credentials.pem"
        write_credentials(file)
        assert file.stat().st_mode & 0o777 == 0o600
        assert security_of(file).require_encryption
        file.chmod(0o640)
        with pytest.raises(UsageError, match="others can read the credentials"):
            security_of(file)

    def test_missing_credentials(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="requires credentials") as error:
            connect("tls://127.0.0.1:8786", tmp_path / "none")
        assert "KBUILD_CLUSTER_CREDENTIALS" in error.value.hint

    def test_what_is_no_address(self, tmp_path: Path) -> None:
        for name in (str(tmp_path / "none"), str(tmp_path)):
            with pytest.raises(UsageError, match="neither the address of a cluster"):
                connect(name, tmp_path / "none")

    def test_a_scheduler_that_is_not_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kbuild.plugins.cluster.connect._CONNECT_SECONDS", 0.3)
        (tmp_path / "file").write_text('{"address": "tcp://127.0.0.1:1"}')
        with pytest.raises(ToolchainError, match=r"127.0.0.1:1 does not answer"):
            connect(str(tmp_path / "file"), tmp_path / "none")
