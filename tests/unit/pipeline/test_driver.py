"""Who builds, and why."""

from __future__ import annotations

import io
import shutil
import time
from pathlib import Path

import pytest

from kbuild.cli import build as verb
from kbuild.cli.shells import execute
from kbuild.pipeline.diagnosis import nix_items
from kbuild.pipeline.driver import DriverRequest
from kbuild.pipeline.nix.flake import EvaluationFailures
from kbuild.pipeline.options import driver_request_of, nix_options_of
from kbuild.project.variant import System
from kbuild.system.errors import ToolchainError, UsageError
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.nix.recorded import PlayedNix, program
from tests.support.projects import BINDING, kernel, write_project

FLAKE = '{ inputs.kbuild.url = "github:kbuild/kbuild"; outputs = _: { }; }\n'


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr("kbuild.project.variant.host_system", lambda: System.parse("x86_64-linux"))
    folder = write_project(tmp_path / "project", BINDING, kernel("cpu"))
    (folder / "flake.nix").write_text(FLAKE)
    (folder / "flake.lock").write_text("{}")
    program(tmp_path, monkeypatch)
    return folder


@pytest.fixture
def services(tmp_path):
    runner = PlayedNix("2.34", tmp_path)
    return Services(runner, Ui(out=io.StringIO(), err=io.StringIO()), tmp_path / "cache")


class TestAuto:
    def test_nix_where_the_flake_uses_kbuild(self, root, services):
        driver = DriverRequest().driver(root, services, {"KBUILD_TOOLCHAIN": ""})
        assert str(driver) == "driver: nix 2.34.3, sandbox on (flake.nix uses kbuild)"

    def test_a_flake_that_nix_has_not_locked_is_no_wish_for_nix(self, root, services):
        (root / "flake.lock").unlink()
        driver = DriverRequest().driver(root, services, {})
        assert (driver.name, driver.reason) == ("local", "")
        assert services.runner.asked == []
        assert DriverRequest("nix").driver(root, services, {}).name == "nix"

    def test_nothing_is_said_where_there_is_no_choice(self, root, services):
        (root / "flake.nix").write_text("{ outputs = _: { }; }\n")
        driver = DriverRequest().driver(root, services, {})
        assert (driver.name, driver.reason, driver.nix) == ("local", "", None)
        (root / "flake.nix").unlink()
        assert DriverRequest().driver(root, services, {}).reason == ""
        assert services.runner.asked == []

    @pytest.mark.parametrize(
        ("environ", "words"),
        [
            ({"IN_NIX_SHELL": "impure", "NIX_BUILD_TOP": "/build"}, "a Nix shell"),
            ({"NIX_BUILD_TOP": "/build"}, "build of a derivation"),
            ({"KBUILD_TOOLCHAIN": "host"}, "KBUILD_TOOLCHAIN"),
            ({"KBUILD_TOOLCHAIN": "", "IN_NIX_SHELL": "pure"}, "a Nix shell"),
        ],
    )
    def test_surroundings_that_speak_for_this_machine(self, root, services, environ, words):
        driver = DriverRequest().driver(root, services, environ)
        assert driver.name == "local"
        assert words in driver.reason

    def test_options_that_only_one_driver_has(self, root, services):
        assert DriverRequest(local=["--arch"]).driver(root, services, {}).reason == (
            "--arch is an option of the local driver"
        )
        chosen = DriverRequest(nix=["--builders"]).driver(
            root, services, {"KBUILD_TOOLCHAIN": "host"}
        )
        assert (chosen.name, chosen.reason) == ("nix", "--builders is Nix's")

    def test_a_nix_that_cannot_be_used(self, root, services, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr("kbuild.pipeline.nix.program._PROFILE", "/nowhere")
        assert DriverRequest().driver(root, services, {}).reason == "Nix is not installed"
        with pytest.raises(ToolchainError):
            DriverRequest("nix").driver(root, services, {})
        with pytest.raises(ToolchainError):
            DriverRequest(nix=["--cores"]).driver(root, services, {})

    def test_a_nix_that_does_not_work_is_not_asked_again(self, root, services, monkeypatch):
        asked = services.runner.asked
        services.runner.release = "2.3"
        assert "2.3.3 is too old" in DriverRequest().driver(root, services, {}).reason
        assert asked
        asked.clear()
        reason = DriverRequest().driver(root, services, {}).reason
        assert "2.3.3 is too old: 2.8 is the oldest that does; --driver nix tries again" in reason
        assert asked == []
        with pytest.raises(ToolchainError):
            DriverRequest("nix").driver(root, services, {})
        asked.clear()
        services.runner.release = "2.34"
        Path(shutil.which("nix")).write_text("#!/bin/sh\nexec another\n")
        assert DriverRequest().driver(root, services, {}).name == "nix"


class TestRefusals:
    @pytest.mark.parametrize(
        "wish",
        [
            DriverRequest(local=["--arch"], nix=["--cores"]),
            DriverRequest("nix", local=["--python"]),
            DriverRequest("local", nix=["--rebuild"]),
        ],
    )
    def test_options_of_different_drivers(self, root, services, wish):
        with pytest.raises(UsageError, match=r"needs the local|works only with"):
            wish.driver(root, services, {})

    def test_no_flake(self, root, services):
        (root / "flake.nix").unlink()
        with pytest.raises(UsageError, match=r"has no flake\.nix"):
            DriverRequest("nix").driver(root, services, {})
        with pytest.raises(UsageError, match=r"has no flake\.nix"):
            DriverRequest(nix=["--rebuild"]).driver(root, services, {})


def parsed(*words):
    from kbuild.cli import find_command
    from kbuild.cli.parser import build_parser

    return build_parser(find_command("build")).parse_args(words)


def wish(*words):
    args = parsed(*words)
    return driver_request_of(args, nix_options_of(args))


class TestCommandLine:
    def test_plain(self, monkeypatch):
        monkeypatch.delenv("KBUILD_DRIVER")
        assert wish() == DriverRequest("auto")
        monkeypatch.setenv("KBUILD_DRIVER", "nix")
        assert wish().asked == "nix"

    @pytest.mark.parametrize(
        "words",
        [
            ("--toolchain", "host"), ("--python", "python3"), ("--torch-wheel", "x.whl"),
            ("--with-source", "a=b"), ("--arch", "9.0"), ("--dev",), ("--jobs", "2"),
            ("--memory", "4G"), ("--time-budget", "1h"), ("--report",), ("--provenance",),
            ("--max-file-size", "1G"),
            ("--unique-id", "x"), ("--kernel-sha", "0" * 40),
        ],
    )  # fmt: skip
    def test_the_local_drivers(self, words):
        assert wish(*words).local == (words[0],)

    @pytest.mark.parametrize(
        "words",
        [
            ("--max-jobs", "auto"), ("--cores", "0"), ("--builders", "ssh-ng://one"),
            ("--rebuild",), ("--print-build-logs",), ("--override-input", "a", "path:/b"),
            ("--option", "cores", "1"),
        ],
    )  # fmt: skip
    def test_nixs(self, words):
        assert wish(*words).nix == (words[0],)

    def test_a_toolchain_of_the_environment_is_no_option(self, monkeypatch):
        monkeypatch.setenv("KBUILD_TOOLCHAIN", "wheels")
        assert wish().local == ()
        assert wish("--toolchain", "host").local == ("--toolchain",)

    @pytest.mark.parametrize(
        "words", [("--driver", "make"), ("--max-jobs", "many"), ("--cores", "-1")]
    )
    def test_values_that_do_not_exist(self, words):
        with pytest.raises(UsageError):
            wish(*words)


def context(services, root, became=None):
    return Services(
        services.runner,
        services.ui,
        services.cache,
        root,
        became.append if became is not None else _no,
    )


def _no(*_):
    raise AssertionError("nothing was to be started")


class TestBuild:
    """The command turns back to this machine only where it may."""

    def run(self, root, services, monkeypatch, *words):
        monkeypatch.delenv("KBUILD_DRIVER", raising=False)
        monkeypatch.setattr(verb, "_build_locally", lambda *_: ())
        return verb.execute(parsed(str(root), *words), context(services, root))

    def test_an_input_out_of_reach(self, root, services, monkeypatch):
        services.runner.evaluation = "unreachable"
        assert self.run(root, services, monkeypatch) == 0
        said = services.ui._err.getvalue()
        assert (
            "driver: using local instead of nix (an input of the project's flake cannot be fetched"
        ) in said
        assert "download-attempts" in services.runner.asked[-1]

    def test_an_input_out_of_reach_is_remembered(self, root, services, monkeypatch):
        services.runner.evaluation = "unreachable"
        self.run(root, services, monkeypatch)
        services.runner.asked.clear()
        self.run(root, services, monkeypatch)
        assert services.runner.asked == []
        assert "--driver nix tries again" in services.ui._err.getvalue()
        (root / "flake.lock").write_text('{ "changed": true }')
        self.run(root, services, monkeypatch)
        assert services.runner.asked != []

    def test_a_failure_is_forgotten_after_a_day(self, root, services, monkeypatch):
        failures = EvaluationFailures(root, services.cache)
        failures.remember("no network")
        assert failures.remembered() == "no network"
        now = time.time()
        monkeypatch.setattr("time.time", lambda: now + 25 * 3600)
        assert failures.remembered() == ""

    @pytest.mark.parametrize("words", [("--driver", "nix"), ("--cores", "1")])
    def test_not_when_nix_was_asked_for(self, root, services, monkeypatch, words):
        from kbuild.system.errors import BuildError

        services.runner.evaluation = "unreachable"
        with pytest.raises(BuildError, match="cannot be fetched"):
            self.run(root, services, monkeypatch, *words)
        assert "download-attempts" not in services.runner.asked[-1]

    def test_not_from_an_error_of_the_flake(self, root, services, monkeypatch):
        from kbuild.system.errors import ConfigError

        services.runner.evaluation = "untracked"
        with pytest.raises(ConfigError):
            self.run(root, services, monkeypatch)


class TestShells:
    @pytest.fixture(autouse=True)
    def _auto(self, monkeypatch):
        monkeypatch.setenv("KBUILD_DRIVER", "auto")

    def open(self, root, services, *words, rest=()):
        from kbuild.cli import find_command
        from kbuild.cli.parser import build_parser

        became = []
        args = build_parser(find_command("devshell")).parse_args(words)
        args.rest = rest
        ctx = Services(
            services.runner, services.ui, services.cache, root, lambda *it: became.append(it)
        )
        assert execute(args, ctx) == 0
        ((command, folder),) = became
        assert folder == root
        return command[3:]

    def test_defaults(self, root, services, monkeypatch):
        assert self.open(root, services) == ("develop", ".#default")
        monkeypatch.setenv("KBUILD_NIX_ARGS", "--override-input kbuild/nixpkgs path:/x")
        assert self.open(root, services, "--test", rest=("pytest", "-x")) == (
            "develop", ".#test", "--override-input", "kbuild/nixpkgs", "path:/x",
            "--command", "pytest", "-x",
        )  # fmt: skip

    def test_a_variant(self, root, services):
        name = "torch213-cxx11-cpu-x86_64-linux"
        assert self.open(root, services, "torch213-*")[1] == f".#devShells.{name}"
        assert self.open(root, services, "--test", name)[1] == f".#testShells.{name}"

    def test_what_it_is_made_of_is_fetched_as_pip_is_set_up(self, root, services):
        """Before the shell begins, since settings that are lent are taken away again."""
        services.runner.pip = "global.index-url='https://me:secret@a.invalid/simple'\n"
        assert self.open(root, services, rest=("true",)) == (
            "develop", ".#default", "--command", "true",
        )  # fmt: skip
        (first,) = (command for command in services.runner.asked if "develop" in command)
        assert first[-2:] == ("--command", "true")
        (environment,) = services.runner.environments
        folder = Path(environment["PIP_CONFIG_FILE"]).parent
        assert str(folder) in first[first.index("extra-sandbox-paths") + 1].split()
        assert not folder.exists()

    def test_a_daemon_is_lent_nothing(self, root, services):
        services.runner.store = "daemon"
        self.open(root, services)
        assert not services.runner.environments

    @pytest.mark.parametrize("pattern", ["torch21?-*", "*-aarch64-linux"])
    def test_a_pattern_for_several_or_none(self, root, services, pattern):
        with pytest.raises(UsageError, match="does not name one variant"):
            self.open(root, services, pattern)

    def test_the_arguments_of_other_tools(self, root, services):
        name = "torch213-cxx11-cpu-x86_64-linux"
        words = (str(root), "--variant", "torch213-*", "--max-jobs", "2", "--cores", "3", "-L")
        assert self.open(root, services, *words) == (
            "develop", f".#devShells.{name}", "--max-jobs", "2", "--cores", "3", "-L",
        )  # fmt: skip

    @pytest.mark.parametrize("shell", [(), ("--test",)])
    def test_nix_that_was_asked_for_and_is_not_there(self, root, services, monkeypatch, shell):
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr("kbuild.pipeline.nix.program._PROFILE", "/nowhere")
        with pytest.raises(ToolchainError, match="not installed"):
            self.open(root, services, *shell, "--driver", "nix")
        (root / "flake.nix").unlink()
        with pytest.raises(UsageError, match=r"no flake\.nix"):
            self.open(root, services, *shell, "--driver", "nix")


class TestDoctor:
    def test_a_nix_with_a_sandbox(self, root, services, tmp_path):
        nix, sandbox = nix_items(services.cache, services.runner)
        assert (nix.state, sandbox.state) == ("ok", "ok")
        assert nix.details == f"2.34.3 {tmp_path / 'bin' / 'nix'}"
        assert sandbox.details == "on, user namespaces, no users to build as"

    def test_one_without(self, root, services):
        services.runner.settings = {"sandbox": False}
        services.runner.namespaces = False
        _, sandbox = nix_items(services.cache, services.runner)
        assert sandbox.state == "optional"
        assert sandbox.details.startswith("off, no user namespaces")
        assert "sandbox = true" in sandbox.mend

    def test_none(self, services, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr("kbuild.pipeline.nix.program._PROFILE", "/nowhere")
        (item,) = nix_items(services.cache, services.runner)
        assert (item.state, item.details) == ("optional", "")
        assert "--with-nix" in item.mend
