from __future__ import annotations

from pathlib import Path

from projects import BINDING, kernel

from kbuild.identity import Identity
from kbuild.matrix.selection import Selection
from kbuild.pipeline import fitted, plan
from kbuild.plan import Requirements
from kbuild.run import LocalRunner
from kbuild.toolchains import Toolchain, ToolchainSource
from kbuild.toolchains.toolbox import Toolbox

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
    plans = plan(made, Selection(globs=NAMES), LocalRunner(), identity=CLEAN)
    tools = Toolbox([OldCompiler()])
    old, new = fitted(made, plans, tools, LocalRunner(), identity=CLEAN)
    assert [one.variant for one in (old, new)] == [one.variant for one in plans]
    assert "10.0" in plans[0].archs
    assert "10.0" not in old.archs
    assert new is plans[1]


def test_archs_that_the_user_asks_for_stay(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    given = {"identity": CLEAN, "archs": ("9.0",)}
    plans = plan(made, Selection(globs=NAMES[:1]), LocalRunner(), **given)
    (old,) = fitted(made, plans, OldCompiler(), LocalRunner(), **given)
    assert old.archs == ("9.0",)
