"""Which Nix is there, what it is told, and what its sandbox is worth."""

from __future__ import annotations

import pytest

from kbuild.pipeline.nix.program import find_nix
from kbuild.system.errors import ToolchainError
from kbuild.system.version import Version
from tests.support.nix.recorded import RELEASES, SETTINGS, PlayedNix, program


@pytest.fixture
def nix_program(tmp_path, monkeypatch):
    monkeypatch.setenv("NIX_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return program(tmp_path, monkeypatch)


@pytest.mark.parametrize("release", RELEASES)
def test_outputs_of_a_derivation_are_written_as_the_release_wants(nix_program, tmp_path, release):
    nix = find_nix(tmp_path, PlayedNix(release, tmp_path))
    assert nix.version == Version.parse(f"{release}.3")
    assert nix.sandbox.state == "on"
    expected = "/nix/store/x.drv" if release == "2.8" else "/nix/store/x.drv^*"
    assert nix.outputs_of("/nix/store/x.drv") == expected
    assert nix.command("build")[:4] == (
        str(nix_program), "--extra-experimental-features", "nix-command flakes", "build",
    )  # fmt: skip


@pytest.mark.usefixtures("nix_program")
class TestAsking:
    def test_once_per_configuration(self, tmp_path, monkeypatch):
        runner = PlayedNix("2.26", tmp_path)
        find_nix(tmp_path, runner)
        asked = len(runner.asked)
        assert find_nix(tmp_path, runner).sandbox.state == "on"
        assert len(runner.asked) == asked
        runner.settings = SETTINGS | {"sandbox": False}
        monkeypatch.setenv("NIX_CONFIG", "sandbox = false")
        assert find_nix(tmp_path, runner).sandbox.state == "off"
        (tmp_path / "conf").mkdir()
        monkeypatch.delenv("NIX_CONFIG")
        (tmp_path / "conf" / "nix.conf").write_text("sandbox = false\n")
        assert find_nix(tmp_path, runner).sandbox.state == "off"

    @pytest.mark.parametrize(
        ("settings", "namespaces", "state"),
        [
            ({}, True, "on"),
            ({"sandbox": "relaxed"}, True, "relaxed"),
            ({"sandbox": False}, True, "off"),
            ({"sandbox-fallback": True}, True, "on"),
            ({"sandbox-fallback": True}, False, "unsure"),
            ({}, False, "on"),
        ],
    )
    def test_the_sandbox(self, tmp_path, settings, namespaces, state):
        runner = PlayedNix("2.8", tmp_path, settings=SETTINGS | settings, namespaces=namespaces)
        sandbox = find_nix(tmp_path, runner).sandbox
        assert sandbox.state == state
        assert bool(sandbox.warning) == (state != "on")

    def test_the_group_that_builds(self, tmp_path, monkeypatch):
        monkeypatch.setattr("kbuild.pipeline.nix.program._group_members", lambda _: 4)
        grouped = SETTINGS | {"build-users-group": "nixbld"}
        nix = find_nix(tmp_path, PlayedNix("2.8", tmp_path, settings=grouped))
        assert (nix.sandbox.group, nix.sandbox.has_users) == ("nixbld", True)
        alone = find_nix(tmp_path / "other", PlayedNix("2.8", tmp_path))
        assert (alone.sandbox.group, alone.sandbox.has_users) == ("", False)

    def test_a_store_that_cannot_be_opened_is_not_remembered(self, tmp_path):
        class Closed(PlayedNix):
            def run(self, argv, **other):
                if "ping" in argv:
                    return self._done(tuple(argv), "error: cannot connect to the daemon\n", 1)
                return super().run(argv, **other)

        with pytest.raises(ToolchainError, match="cannot connect to the daemon"):
            find_nix(tmp_path, Closed("2.26", tmp_path))
        assert find_nix(tmp_path, PlayedNix("2.26", tmp_path)).version.minor == 26
