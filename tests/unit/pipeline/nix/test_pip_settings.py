"""What builders that fetch wheels are lent of a user's settings of pip."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest

from kbuild.pipeline.nix.pip_settings import (
    SandboxPipSettings,
    sandbox_pip_settings,
    write_pip_settings,
)
from kbuild.pipeline.nix.program import Nix, NixSandbox
from kbuild.system.version import Version
from kbuild.toolchains.wheels.settings import IndexSettings
from tests.support.nix.recorded import PlayedNix

HTTPS = "https://user:s%20cret@index.example.invalid/simple"


def lent(settings: IndexSettings, folder: Path, **environ: str) -> SandboxPipSettings:
    folder.mkdir(exist_ok=True)
    return write_pip_settings(settings, folder, environ)


def options(made: SandboxPipSettings) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read(made.environment["PIP_CONFIG_FILE"])
    return dict(parser["global"])


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def runner(tmp_path_factory: pytest.TempPathFactory) -> PlayedNix:
    return PlayedNix("2.26", tmp_path_factory.mktemp("store"))


@pytest.fixture
def nix() -> Nix:
    return Nix("nix", Version.parse("2.26"), NixSandbox("on"))


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    place = tmp_path / "odd place"
    place.mkdir()
    return place


class TestConfiguration:
    def test_it_is_all_that_pip_gets(self, tmp_path):
        settings = IndexSettings(
            HTTPS, ("https://more.example.invalid/simple",), (), False,
            ("index.example.invalid",), None, None, "http://p:1", 90.0, 7,
        )  # fmt: skip
        environ = {"PIP_CONSTRAINT": "/c", "PIP_INDEX_URL": HTTPS, "PIP_CONFIG_FILE": "/x"}
        made = lent(settings, tmp_path / "own", SSL_CERT_FILE="/nowhere", **environ)
        read = options(made)
        read.pop("cert", None)  # this machine's, where it has any
        assert read == {
            "index-url": HTTPS,
            "extra-index-url": "https://more.example.invalid/simple",
            "trusted-host": "index.example.invalid",
            "proxy": "http://p:1",
            "timeout": "90",
            "retries": "7",
        }
        assert {name for name in made.environment if name.startswith("PIP_")} == {"PIP_CONFIG_FILE"}
        assert made.places == (str(tmp_path / "own" / "pip"),)

    def test_files_are_copies_that_any_builder_reads(self, tmp_path, odd):
        old = os.umask(0o077)
        try:
            (odd / "ca.pem").write_text("ca")
            (odd / "key.pem").write_text("key")
            folder = IndexSettings(cert=str(odd / "ca.pem"), client_cert=str(odd / "key.pem"))
            made = lent(folder, tmp_path / "own")
        finally:
            os.umask(old)
        read = options(made)
        assert (Path(read["cert"]).read_text(), Path(read["client-cert"]).read_text()) == (
            "ca", "key",
        )  # fmt: skip
        (place,) = made.places
        for path in (Path(place), *Path(place).iterdir()):
            assert path.stat().st_mode & 0o005 == (0o005 if path.is_dir() else 0o004)
        assert (tmp_path / "own").stat().st_mode & 0o077 == 0  # others do not get that far

    def test_all_is_gone_afterwards(self, nix, runner, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with sandbox_pip_settings(nix, runner) as made:
            file = Path(made.environment["PIP_CONFIG_FILE"])
            assert file.is_relative_to(tmp_path)
            assert file.is_file()
            # A later run finds by its lock whether it is in use.
            (folder,) = (path for path in tmp_path.glob("*/*") if path.is_dir())
            assert folder.with_name(f"{folder.name}.lock").is_file()
        assert list(tmp_path.iterdir()) == []


class TestCredentials:
    NETRC = (
        "machine index.example.invalid login me password abc\n"
        "machine elsewhere.example.invalid login me password secret\n"
    )

    def test_only_those_of_the_hosts_of_wheels(self, tmp_path):
        (Path.home() / ".netrc").write_text(self.NETRC)
        settings = IndexSettings("https://index.example.invalid:8443/simple")
        made = lent(settings, tmp_path / "own")
        text = Path(made.environment["PIP_CONFIG_FILE"]).with_name("pip.conf.netrc").read_text()
        assert text == "machine index.example.invalid login me password abc\n"

    def test_the_file_that_is_named(self, tmp_path, odd):
        (odd / "netrc").write_text("default login anyone password x#y\n")
        settings = IndexSettings("http://one/simple", ("http://two/simple",), ("http://three/",))
        made = lent(settings, tmp_path / "own", NETRC=str(odd / "netrc"))
        text = Path(made.environment["PIP_CONFIG_FILE"]).with_name("pip.conf.netrc").read_text()
        assert [line.split()[1] for line in text.splitlines()] == ["one", "two", "three"]
        assert 'password "x#y"' in text


class TestFolders:
    def test_of_wheels(self, tmp_path):
        wheels, more, elsewhere = (tmp_path / name for name in ("wheels", "more", "elsewhere"))
        for folder in (wheels, more / "in", elsewhere):
            folder.mkdir(parents=True)
        (elsewhere / "a.whl").write_text("")
        (wheels / "a.whl").symlink_to(elsewhere / "a.whl")
        (more / "page.html").write_text("")
        places = (
            str(wheels), f"file://{more}/page.html", str(more / "in"), "https://x.invalid/w",
            str(tmp_path / "missing"), str(tmp_path / "with space"),
        )  # fmt: skip
        (tmp_path / "with space").mkdir()
        made = lent(IndexSettings(find_links=places), tmp_path / "own")
        assert made.places[1:] == (str(wheels), str(elsewhere), str(more))

    def test_what_other_users_cannot_read_is_told(self, tmp_path):
        for name, mode in (("open", 0o755), ("closed", 0o700)):
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(mode)
        settings = IndexSettings(find_links=(str(tmp_path / "open"), str(tmp_path / "closed")))
        (tmp_path / "own").mkdir()
        made = write_pip_settings(settings, tmp_path / "own", {}, "no-such-group")
        assert made.unreadable == (str(tmp_path / "closed"),)
        assert write_pip_settings(settings, tmp_path / "own", {}).unreadable == ()

    def test_of_an_index_and_of_what_its_pages_link_to(self, tmp_path):
        index, files = tmp_path / "home" / "simple", tmp_path / "home" / "files"
        absolute = tmp_path / "absolute"
        for folder in (index / "a", index / "b", files, absolute):
            folder.mkdir(parents=True)
        (index / "a" / "index.html").write_text(
            "<a href=\"../../files/a%2Bcpu.whl#sha256=1\">a</a><A class=x HREF='own.whl'>"
            '<a href="https://elsewhere.invalid/x/a.whl">a</a>'
        )
        (index / "b" / "index.html").write_text(f'<a href="file://{absolute}/b.whl">b</a>')
        made = lent(IndexSettings(extra_index_urls=(f"file://{index}",)), tmp_path / "own")
        assert set(made.places[1:]) == {str(index), str(files), str(absolute)}
