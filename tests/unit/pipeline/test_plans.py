from __future__ import annotations

from pathlib import Path

from kbuild.identity import Identity
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.plans import plan_variants, replan_for_compilers
from kbuild.pipeline.variant import BuildContext
from kbuild.plan import Requirements
from kbuild.runtime.processes import LocalRunner
from kbuild.selection import Selection
from kbuild.services import Services
from kbuild.toolchains.base import FallbackToolchains, Toolchain, ToolchainSource
from kbuild.ui import Ui
from tests.support.git_repository import commit, git
from tests.support.projects import BINDING, kernel

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
    plans = plan_variants(made, Selection(globs=NAMES), LocalRunner(), identity=CLEAN)
    tools = FallbackToolchains([OldCompiler()])
    old, new = replan_for_compilers(made, plans, tools, LocalRunner(), identity=CLEAN)
    assert [one.variant for one in (old, new)] == [one.variant for one in plans]
    assert "10.0" in plans[0].archs
    assert "10.0" not in old.archs
    assert new is plans[1]


def test_archs_that_the_user_asks_for_stay(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    given = {"identity": CLEAN, "archs": ("9.0",)}
    plans = plan_variants(made, Selection(globs=NAMES[:1]), LocalRunner(), **given)
    (old,) = replan_for_compilers(made, plans, OldCompiler(), LocalRunner(), **given)
    assert old.archs == ("9.0",)


def test_names_stay_while_files_are_edited_in_development(project) -> None:
    made = project(BINDING, kernel("cpu"))
    git(made.root, "init", "-q")
    commit(made.root)

    def names(*, dev: bool) -> tuple[str, bool]:
        options = BuildOptions(dev=dev)
        site = BuildContext(
            made,
            FallbackToolchains([]),
            options,
            Services(LocalRunner(), Ui(), made.root / "cache"),
        )
        first, *_ = plan_variants(made, Selection(), LocalRunner(), identity=site.identity)
        return first.ops_name, first.dirty

    clean = [names(dev=dev) for dev in (True, False)]
    assert clean[0] == clean[1]
    assert not clean[0][1]
    (made.root / "build.toml").write_text((made.root / "build.toml").read_text() + "\n")
    assert names(dev=True) == (clean[0][0], True)
    assert names(dev=False) == (f"{clean[0][0]}_dirty", True)


def test_an_id_that_was_given_is_the_name_in_development(project) -> None:
    given = Identity("mine_dirty", "f" * 40, dirty=True)
    services = Services(LocalRunner(), Ui(), Path("cache"))
    site = BuildContext(
        project(BINDING, kernel("cpu")),
        FallbackToolchains([]),
        BuildOptions(identity=given, dev=True),
        services,
    )
    assert site.identity is given
