"""Packages of Debian: where they come from, and how they are unpacked."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.plugins.debian.packages import (
    DebianPackage,
    PackageSet,
    fetch_packages,
    find_mirror,
    unpack_deb,
)
from kbuild.system.errors import ToolchainError
from kbuild.system.files import sha256
from tests.support.debian_packages import ar, make_deb
from tests.support.fake_machine import FakeRunner, failed


@pytest.fixture
def deb(tmp_path) -> Path:
    path = tmp_path / "x.deb"
    files = {"tool": "run", "header": "text", "link": "-> tool", "other": "no"}
    path.write_bytes(make_deb(files))
    return path


class TestUnpacking:
    def test_only_what_is_wanted(self, deb, tmp_path):
        unpack_deb(deb, tmp_path / "to", lambda path: None if "other" in path else f"a/{path[4:]}")
        made = tmp_path / "to" / "a"
        assert sorted(path.name for path in made.iterdir()) == ["header", "link", "tool"]
        assert (made / "link").read_text() == "run"
        assert (made / "tool").stat().st_mode & 0o777 == 0o755
        assert (made / "header").stat().st_mode & 0o777 == 0o644

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"PK", "is not a Debian package"),
            (ar(("data.tar.zst", b"")), "has no data.tar.xz"),
        ],
    )
    def test_other_files_are_refused(self, tmp_path, data, words):
        (tmp_path / "x.deb").write_bytes(data)
        with pytest.raises(ToolchainError, match=words):
            unpack_deb(tmp_path / "x.deb", tmp_path / "to", str)

    def test_nothing_is_written_outside(self, deb, tmp_path):
        with pytest.raises(ToolchainError, match="outside"):
            unpack_deb(deb, tmp_path / "to", lambda path: f"../{path}")


class TestMirror:
    def test_the_users_goes_first(self):
        assert (
            find_mirror({"KBUILD_DEBIAN_MIRROR": "file:///here/"}, FakeRunner({})) == "file:///here"
        )

    def test_apts_own_for_debian(self):
        listed = "https://a.test/other/\nhttps://a.test/debian-security/\nhttps://a.test/debian/\n"
        runner = FakeRunner({"indextargets": listed})
        assert find_mirror({}, runner) == "https://a.test/debian"

    def test_without_one_there_are_words(self):
        with pytest.raises(ToolchainError, match="no Debian mirror") as caught:
            find_mirror({}, FakeRunner({"indextargets": "https://a.test/ubuntu/\n"}))
        assert "KBUILD_DEBIAN_MIRROR" in caught.value.hint


ONE = DebianPackage("a", "1", "pool/a_1.deb", 4, sha256(b"here"))
TWO = DebianPackage("b", "1", "pool/b_1.deb", 4, sha256(b"data"))
MIRROR = {"KBUILD_DEBIAN_MIRROR": "file:///mirror"}


class TestFetching:
    def some(self):
        return PackageSet("forky", (ONE, TWO), "install the programs yourself")

    def test_only_what_is_missing(self, tmp_path):
        (tmp_path / ONE.file).write_bytes(b"here")

        def download(command):
            assert command[-3:] == ("file:///mirror/pool/b_1.deb", TWO.file, f"SHA256:{TWO.sha256}")
            assert not any(ONE.file in part for part in command)
            (tmp_path / TWO.file).write_bytes(b"data")
            return ""

        runner = FakeRunner({"download-file": download})
        assert fetch_packages(self.some(), tmp_path, MIRROR, runner) == [
            tmp_path / ONE.file,
            tmp_path / TWO.file,
        ]
        fetch_packages(self.some(), tmp_path, {}, FakeRunner({}))

    def test_a_suite_that_has_moved_on(self, tmp_path):
        (tmp_path / ONE.file).write_bytes(b"here")
        runner = FakeRunner({"download-file": failed("404  Not Found")})
        with pytest.raises(ToolchainError, match=r"forky has moved on: .* no longer has b_1\.deb"):
            fetch_packages(self.some(), tmp_path, MIRROR, runner)

    def test_another_failure_is_shown(self, tmp_path):
        runner = FakeRunner({"download-file": failed("Hash Sum mismatch")})
        with pytest.raises(ToolchainError, match="Hash Sum mismatch"):
            fetch_packages(self.some(), tmp_path, MIRROR, runner)
