"""From a selection to variant directories, with a Nix that plays recorded builds."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.pipeline.nix.flake import Flake
from kbuild.pipeline.nix.program import find_nix
from kbuild.pipeline.nix_build import NixBuild, NoDerivationError
from kbuild.plan.selection import Selection
from kbuild.project.variant import System
from kbuild.system.errors import BuildError, ConfigError, FileConflictError
from kbuild.system.services import Services
from kbuild.system.ui import Ui
from tests.support.nix.recorded import (
    RELEASES,
    SETTINGS,
    PlayedNix,
    derivations,
    make_output,
    program,
)
from tests.support.projects import BINDING, kernel

T211, T212, T213, T214 = (f"torch2{minor}-cxx11-cpu-x86_64-linux" for minor in (11, 12, 13, 14))


class NixProject:
    """A project, its played Nix, and what is said."""

    def __init__(self, project, release, tmp_path, monkeypatch, **played):
        program(tmp_path, monkeypatch)
        monkeypatch.setattr(
            "kbuild.pipeline.nix_build.host_system", lambda: System.parse("x86_64-linux")
        )
        self.project = project(BINDING, kernel("cpu"))
        store = tmp_path / "store"
        store.mkdir()
        self.runner = PlayedNix(release, store, derivations(release), **played)
        self.err = io.StringIO()
        self.cache = tmp_path / "cache"

    def build(self, *globs, output=None):
        self.err.truncate(0)
        services = Services(
            self.runner, Ui(out=io.StringIO(), err=self.err, environ={}), self.cache
        )
        nix = find_nix(self.cache, self.runner)
        flake = Flake(self.project.root, nix, self.runner)
        selection = Selection(globs=globs)
        results = NixBuild(self.project, flake, selection, output, services).perform()
        return {result.variant: result for result in results}

    @property
    def said(self):
        return self.err.getvalue()

    def metadata(self, variant):
        text = (self.project.root / "build" / variant / "metadata.json").read_text()
        return json.loads(text)["provenance"]["kernel-builder"]


@pytest.fixture
def nix_project(project, tmp_path, monkeypatch):
    def make(release="2.26", **played):
        return NixProject(project, release, tmp_path, monkeypatch, **played)

    return make


@pytest.mark.parametrize("release", RELEASES)
class TestReleases:
    def test_what_can_be_made_is_made(self, nix_project, release):
        here = nix_project(release, makes=(T212, T213), code=1)
        found = here.build(T211, T212, T213, T214)
        assert {name: result.status for name, result in found.items()} == {
            T211: "failed", T212: "built", T213: "built", T214: "failed",
        }  # fmt: skip
        assert found[T214].error.message == (
            f"{T214}: broken-toolchain: its builder failed with exit code 3"
        )
        assert isinstance(found[T211].error, BuildError)
        assert found[T211].error.code == 5
        (command,) = here.runner.builds
        assert sum(word.split("^")[0].endswith(".drv") for word in command) == 4
        assert "--keep-going" in command

    def test_an_error_of_the_flake_has_a_place(self, nix_project, release):
        here = nix_project(release, evaluation="undefined")
        recorded = "{ outputs = { self }:\n  { packages.x86_64-linux = foo; }; }\n"
        (here.project.root / "flake.nix").write_text(recorded)
        with pytest.raises(ConfigError) as caught:
            _at(here, "/home/ann/relu").build(T213)
        (problem,) = caught.value.problems
        assert (problem.file, problem.line) == ("flake.nix", 2)
        assert problem.message == "undefined variable 'foo'"

    def test_a_file_that_git_does_not_know(self, nix_project, release):
        here = nix_project(release, evaluation="untracked")
        (here.project.root / "flake.nix").write_text("{ }\n")
        with pytest.raises(ConfigError) as caught:
            here.build(T213)
        (problem,) = caught.value.problems
        assert problem.hint == "git add --intent-to-add flake.nix"

    def test_an_input_that_cannot_be_fetched(self, nix_project, release):
        here = nix_project(release, evaluation="unreachable")
        with pytest.raises(BuildError, match="cannot be fetched: unable to download"):
            here.build(T213)


def _at(here, folder):
    """The project seems to be in a folder that the recorded log names."""
    run = here.runner.run

    def moved(argv, **other):
        done = run(argv, **other)
        return replace(done, output=done.output.replace(folder, str(here.project.root)))

    here.runner.run = moved
    return here


class TestCopies:
    def test_they_can_be_written_to_and_are_made_once(self, nix_project):
        here = nix_project(makes=(T212, T213), code=1)
        here.build(T212, T213)
        target = here.project.root / "build" / T213
        modes = {path.name: path.stat().st_mode & 0o777 for path in target.rglob("*")}
        assert modes["_k.abi3.so"] == 0o755
        assert modes["layers"] == 0o755
        assert modes["metadata.json"] == 0o644
        assert (target / "__init__.py").stat().st_mtime > 1e9
        (target / "__pycache__").mkdir()
        (target / "__pycache__" / "x.pyc").write_text("")
        again = here.build(T212, T213)
        assert {result.status for result in again.values()} == {"up-to-date"}
        assert len(here.runner.builds) == 1

    def test_a_changed_variant_is_copied_again(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        here.build(T213)
        target = here.project.root / "build" / T213
        (target / "__init__.py").write_text("edited = True\n")
        assert here.build(T213)[T213].status == "built"
        assert "edited" not in (target / "__init__.py").read_text()

    def test_what_a_cache_has_is_not_built(self, nix_project):
        here = nix_project("2.34", makes=(T213,), played="fetch")
        assert here.build(T213)[T213].status == "built"
        assert f"{T213}: it was in the store already, or in a binary cache" in here.said

    def test_an_added_file_makes_it_another_variant(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        here.build(T213)
        (here.project.root / "build" / T213 / "more.py").write_text("")
        assert here.build(T213)[T213].status == "built"

    def test_what_kbuild_did_not_make_stays(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        target = here.project.root / "build" / T213
        target.mkdir(parents=True)
        (target / "thesis.txt").write_text("years of work")
        with pytest.raises(FileConflictError):
            here.build(T213)
        assert (target / "thesis.txt").read_text() == "years of work"

    def test_another_folder(self, nix_project, tmp_path):
        here = nix_project(makes=(T213,), code=1)
        found = here.build(T213, output=tmp_path / "out")
        assert found[T213].path == tmp_path / "out" / T213
        assert not (here.project.root / "build").exists()

    def test_a_leftover_of_an_interrupted_copy_is_no_hindrance(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        left = here.project.root / "build" / f".{T213}.new"
        make_output(left)
        here.build(T213)
        assert not left.exists()


class TestSettingsOfPip:
    """Builders that fetch wheels get them; see `kbuild.pipeline.nix.pip_settings`."""

    SAID = "global.index-url='https://me:secret@a.invalid/simple'\nglobal.constraint='/c'\n"

    def test_lent_without_being_told(self, project, tmp_path, monkeypatch):
        monkeypatch.setenv("PIP_CONSTRAINT", "/c")
        nix_project = NixProject(
            project, "2.26", tmp_path, monkeypatch, makes=(T212, T213), pip=self.SAID
        )
        nix_project.build(T213)
        (environment,) = nix_project.runner.environments
        (command,) = nix_project.runner.builds
        given = environment["PIP_CONFIG_FILE"]
        at = command.index("extra-sandbox-paths")
        assert command[at - 1] == "--option"
        assert str(Path(given).parent) in command[at + 1].split()
        assert [name for name in environment if name.startswith("PIP_")] == ["PIP_CONFIG_FILE"]
        assert "secret" not in f"{command} {environment} {nix_project.said}"
        assert not Path(given).exists()

    def test_a_daemon_has_its_own(self, project, tmp_path, monkeypatch):
        monkeypatch.setenv("PIP_CONSTRAINT", "/c")
        nix_project = NixProject(
            project, "2.26", tmp_path, monkeypatch, makes=(T212, T213), store="daemon"
        )
        nix_project.build(T213)
        assert nix_project.runner.environments[0]["PIP_CONSTRAINT"] == "/c"
        assert "extra-sandbox-paths" not in nix_project.runner.builds[0]
        assert not any("pip" in command for command in nix_project.runner.asked)


class TestSandbox:
    def test_a_variant_made_without_one_says_so(self, nix_project):
        here = nix_project(makes=(T213,), code=1, settings=SETTINGS | {"sandbox": False})
        here.build(T213)
        assert "sandbox is off" in here.said
        assert here.metadata(T213)["sandbox"] == "off"

    def test_nothing_is_said_of_one_that_works(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        here.build(T213)
        assert "sandbox" not in here.metadata(T213)
        assert "sandbox" not in here.said


class TestSelection:
    def test_reasons_for_what_the_flake_does_not_make(self, nix_project):
        here = nix_project(makes=(T213,), code=1, refused={T212: "no nvcc of that release"})
        here.runner.variants = {T213: here.runner.variants[T213]}
        found = here.build("torch21[234]-cxx11-cpu-*")
        assert found[T213].status == "built"
        assert found[T212].reason == "no nvcc of that release"
        assert found[T214].reason == "the project's flake does not offer it"
        aarch = "torch213-cxx11-cpu-aarch64-linux"
        assert "--system aarch64-linux" in found[aarch].reason

    def test_another_system_is_asked_for_by_name(self, nix_project):
        here = nix_project(makes=(T213,), code=1)
        here.build(T213, "torch213-cxx11-cpu-aarch64-linux")
        asked = [command[command.index("eval") + 2] for command in here.runner.asked
                 if "eval" in command]  # fmt: skip
        assert asked == [".#packages.x86_64-linux", ".#packages.aarch64-linux"]

    def test_nothing_of_it(self, nix_project):
        here = nix_project()
        here.runner.variants = {}
        with pytest.raises(NoDerivationError, match=T213):
            here.build(T213)


class TestFailures:
    def test_nix_itself(self, nix_project):
        here = nix_project(played="unreachable", code=1)
        with pytest.raises(BuildError, match="nix build failed: unable to download"):
            here.build(T213)
