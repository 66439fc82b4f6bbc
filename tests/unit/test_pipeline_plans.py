from __future__ import annotations

from pathlib import Path

from git_bench import commit, git
from projects import BINDING, kernel

from kbuild.identity import Identity
from kbuild.pipeline.plans import replan_for_compilers
from kbuild.plan import Requirements
from kbuild.planning.variant import Planner
from kbuild.runtime.processes import LocalRunner
from kbuild.selection import Selection
from kbuild.sourcetree import SourceTree
from kbuild.toolchains.base import FallbackToolchains, Toolchain, ToolchainSource

CLEAN = Identity("abc1234", "f" * 40)
NAMES = ("torch211-cxx11-cu128-x86_64-linux", "torch211-cxx11-cu130-x86_64-linux")


class OldCompiler(ToolchainSource):
    """nvcc 12.4 for all of CUDA 12."""

    name = "old"

    def refuses(self, requires: Requirements) -> str | None:
        return None if str(requires.toolkit).startswith("12") else "CUDA 12 only"

    def compiler(self, requires: Requirements) -> str | None:
        assert self.refuses(requires) is None
        return "12.4"

    def provision(self, requires: Requirements) -> Toolchain:
        return Toolchain(self.name, Path("cmake"), Path("ninja"), Path("python"))


def test_only_what_another_release_compiles_is_made_again(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN)
    plans = planner.select(Selection(globs=NAMES))
    old, new = replan_for_compilers(planner, plans, FallbackToolchains([OldCompiler()]))
    assert [one.variant for one in (old, new)] == [one.variant for one in plans]
    assert "10.0" in plans[0].archs
    assert "10.0" not in old.archs
    assert new is plans[1]


def test_archs_that_the_user_asks_for_stay(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN, ("9.0",))
    plans = planner.select(Selection(globs=NAMES[:1]))
    (old,) = replan_for_compilers(planner, plans, OldCompiler())
    assert old.archs == ("9.0",)


def test_names_stay_while_files_are_edited_in_development(project) -> None:
    made = project(BINDING, kernel("cpu"))
    git(made.root, "init", "-q")
    commit(made.root)

    def names(*, dev: bool) -> tuple[str, bool]:
        first, *_ = Planner(made, SourceTree(made.root), LocalRunner(), dev=dev).select(Selection())
        return first.ops_name, first.dirty

    clean = [names(dev=dev) for dev in (True, False)]
    assert clean[0] == clean[1]
    assert not clean[0][1]
    (made.root / "build.toml").write_text((made.root / "build.toml").read_text() + "\n")
    assert names(dev=True) == (clean[0][0], True)
    assert names(dev=False) == (f"{clean[0][0]}_dirty", True)


def test_an_id_that_was_given_is_the_name_in_development(project) -> None:
    given = Identity("mine_dirty", "f" * 40, dirty=True)
    made = project(BINDING, kernel("cpu"))
    assert Planner(made, SourceTree(made.root), LocalRunner(), given, dev=True).identity is given
