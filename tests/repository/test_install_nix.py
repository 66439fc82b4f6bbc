"""`install.sh --with-nix`: which Nix is taken, what is written where, and that it can be undone."""

from __future__ import annotations

import sys

import pytest

from tests.support.install_script import NIX, SAY, Machine, program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="plays a Linux machine")
USERS = {"group nixbld", *(f"passwd nixbld{number}" for number in range(1, 9))}
INCLUDE = "!include kbuild.conf\n"


@pytest.fixture
def machine(tmp_path):
    return Machine.made(tmp_path)


def installed(machine: Machine, *argv: str, **env: str) -> str:
    done = machine.install("--with-nix", *argv, **env)
    assert done.returncode == 0, done.stderr
    return done.stderr


class TestDistribution:
    def test_packages_users_and_settings(self, machine):
        said = installed(machine, "--from", "a-spec")
        assert "installing the distribution's Nix" in said
        calls = machine.calls()
        (nix,) = (i for i, c in enumerate(calls) if "apt-get install" in c and "nix-bin" in c)
        (kbuild,) = (i for i, c in enumerate(calls) if c.startswith("uv tool install"))
        assert nix < kbuild
        assert not any("systemctl" in c or "nix-setup-systemd" in c for c in calls)
        assert not any(c.startswith("sudo") for c in calls)  # it is root
        assert machine.accounts() == USERS
        assert machine.nix_conf.read_text() == INCLUDE
        text = machine.settings.read_text()
        assert "experimental-features = nix-command flakes\n" in text
        assert "\nsandbox = true\n" in text
        assert "\nsandbox-fallback = false\n" in text

    @pytest.mark.parametrize(
        ("manager", "call"),
        [
            ("dnf", "dnf install -y nix"),
            ("pacman", "pacman -S --noconfirm --needed nix"),
            ("zypper", "zypper --non-interactive install nix"),
        ],
    )
    def test_other_package_managers(self, tmp_path, manager, call):
        machine = Machine.made(tmp_path, manager=manager)
        installed(machine)
        assert call in machine.calls()
        assert machine.accounts() == USERS

    def test_a_daemon_where_systemd_runs(self, tmp_path):
        machine = Machine.made(tmp_path, uid=1000)
        machine.systemd()
        (machine.home / "accounts").write_text("group nix-users\n")
        said = installed(machine)
        calls = machine.calls()
        assert any("nix-setup-systemd" in call for call in calls)
        assert "systemctl enable --now nix-daemon.socket" in calls
        assert "usermod -aG nix-users somebody" in calls
        assert "log in again" in said

    def test_debians_own_nix_conf_is_overruled(self, machine):
        """Its package brings one that turns the sandbox off: that was nobody's wish here."""
        writes = (
            f"mkdir -p '{machine.nix_conf.parent}'; echo sandbox = false > '{machine.nix_conf}'"
        )
        program(
            machine.tool("apt-get"),
            machine.tool("apt-get").read_text() + f'case "$*" in *install*) {writes} ;; esac\n',
        )
        installed(machine)
        assert machine.nix_conf.read_text() == f"sandbox = false\n{INCLUDE}"
        assert "sandbox = true" in machine.settings.read_text()


class TestAsRoot:
    def test_sudo_asks_nothing_without_a_terminal(self, tmp_path):
        machine = Machine.made(tmp_path, uid=1000)
        installed(machine)
        sudo = [call for call in machine.calls() if call.startswith("sudo")]
        assert len(sudo) > 10
        assert all(call.startswith("sudo -n ") for call in sudo)


INSTALLER = """#!/bin/sh
echo "installer $*" >> "$HOME/calls"
"""


@pytest.fixture
def online(machine):
    """A machine that reaches the installer's address, played by a curl that writes it."""
    program(
        machine.tool("curl"),
        SAY
        + 'while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done\n'
        + f'[ "$out" = /dev/null ] || cat > "$out" <<\'END\'\n{INSTALLER}END\n',
    )
    return machine


class TestDeterminate:
    HOW = {"KBUILD_NIX_FROM": "determinate"}  # noqa: RUF012

    def test_it_is_fetched_over_tls_and_run_without_questions(self, online):
        installed(online, **self.HOW)
        (fetched,) = (call for call in online.calls() if call.startswith("curl"))
        assert "--proto =https --tlsv1.2" in fetched
        assert fetched.endswith("https://install.determinate.systems/nix")
        ran = next(call for call in online.calls() if call.startswith("installer install"))
        assert "--no-confirm" in ran
        assert "linux --init none" in ran  # no systemd here
        assert "--extra-conf" in ran
        assert not any("apt-get" in call for call in online.calls())

    def test_uninstall_runs_its_own(self, online):
        installed(online, **self.HOW)
        program(online.system / "nix" / "nix-installer", SAY)
        done = online.install("--uninstall", "--with-nix")
        assert done.returncode == 0, done.stderr
        assert "nix-installer uninstall --no-confirm" in online.calls()


class TestANixThatIsThere:
    @pytest.fixture
    def machine(self, machine):
        program(machine.tool("nix"), NIX)
        return machine

    def conf(self, machine: Machine, text: str) -> None:
        machine.nix_conf.parent.mkdir(parents=True)
        machine.nix_conf.write_text(text)

    def test_it_stays(self, machine):
        self.conf(machine, "max-jobs = 3\n")
        (machine.home / "accounts").write_text("group nixbld\n")
        said = installed(machine)
        assert "Nix is there" in said
        assert "2.8.0" in said
        assert not any(c.startswith(("apt-get", "useradd", "systemctl")) for c in machine.calls())

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_its_settings_get_one_line_more(self, machine, end):
        self.conf(machine, f"max-jobs = 3{end}")
        installed(machine)
        assert machine.nix_conf.read_text() == f"max-jobs = 3\n{INCLUDE}"

    @pytest.mark.parametrize(
        ("text", "makes"),
        [
            ("max-jobs = 3\n", True),
            ("build-users-group =\n", False),
            ("auto-allocate-uids = true\n", False),
        ],
    )
    def test_users_that_it_builds_as_and_nobody_made(self, machine, text, makes):
        self.conf(machine, text)
        installed(machine)
        assert machine.accounts() == (USERS if makes else set())


class TestTwice:
    def test_the_second_time_changes_nothing(self, machine):
        installed(machine)
        files, accounts = machine.files(), machine.accounts()
        (machine.home / "calls").write_text("")
        assert "Nix is there" in installed(machine)
        assert machine.files() == files
        assert machine.accounts() == accounts
        assert [call for call in machine.calls() if not call.startswith("uv")] == []

    def test_a_dry_run_changes_nothing(self, machine):
        said = installed(machine, "--dry-run")
        for step in (
            "would run: env DEBIAN_FRONTEND=noninteractive apt-get install",
            "would run: groupadd --system nixbld",
            "nixbld8",
            f"would append to {machine.settings}:\n  | # made by install.sh of kbuild\n",
            f"would append to {machine.nix_conf}:\n  | {INCLUDE}",
            "would run: uv tool install",
        ):
            assert step in said
        assert machine.files() == {}
        assert machine.accounts() == set()
        assert [call for call in machine.calls() if call != "uv tool dir --bin"] == []


class TestUninstall:
    def undone(self, machine: Machine) -> str:
        done = machine.install("--uninstall", "--with-nix")
        assert done.returncode == 0, done.stderr
        return done.stderr

    def test_everything_that_it_made_goes(self, machine):
        installed(machine)
        self.undone(machine)
        assert machine.files() == {}
        assert machine.accounts() == set()
        assert any("apt-get purge" in c and "nix-bin" in c for c in machine.calls())

    def test_what_was_there_stays(self, machine):
        program(machine.tool("nix"), NIX)
        machine.nix_conf.parent.mkdir(parents=True)
        machine.nix_conf.write_text("max-jobs = 3\n")
        (machine.home / "accounts").write_text("group nixbld\npasswd nixbld1\n")
        installed(machine)
        self.undone(machine)
        assert machine.files() == {"etc/nix/nix.conf": "max-jobs = 3\n"}
        assert machine.accounts() == {"group nixbld", "passwd nixbld1"}
        assert machine.tool("nix").exists()
        assert not any("apt-get" in call for call in machine.calls())

    def test_without_the_word_nix_stays(self, machine):
        installed(machine)
        files = machine.files()
        done = machine.install("--uninstall")
        assert "Nix stays" in done.stderr
        assert machine.files() == files
