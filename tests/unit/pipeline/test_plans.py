from __future__ import annotations

from collections import Counter
from pathlib import Path

from kbuild.pipeline import toolchains
from kbuild.pipeline.build import build
from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import replan_for_compilers
from kbuild.plan import variant as planning
from kbuild.plan.plan import Requirements
from kbuild.plan.selection import Selection, project_variants
from kbuild.plan.variant import Identity, Planner
from kbuild.system.processes import LocalRunner
from kbuild.system.services import Services
from kbuild.system.sourcetree import SourceTree
from kbuild.system.ui import Ui
from kbuild.toolchains.base import Toolchain, ToolchainSource
from tests.support.fake_machine import toolchains as toolchains_of
from tests.support.git_repository import commit, git
from tests.support.projects import BINDING, kernel

CLEAN = Identity("abc1234", "f" * 40)
NAMES = ("torch211-cxx11-cu128-x86_64-linux", "torch211-cxx11-cu130-x86_64-linux")


class OldCompiler(ToolchainSource):
    """nvcc 12.4 for all of CUDA 12."""

    name = "old"

    def unsupported_reason(self, requires: Requirements) -> str | None:
        return None if str(requires.toolkit).startswith("12") else "CUDA 12 only"

    def compiler(self, requires: Requirements) -> str | None:
        assert self.unsupported_reason(requires) is None
        return "12.4"

    def provision(self, requires: Requirements) -> Toolchain:
        return Toolchain(self.name, Path("cmake"), Path("ninja"), Path("python"))


def test_only_what_another_release_compiles_is_made_again(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN)
    plans = planner.select(Selection(globs=NAMES))
    old, new = replan_for_compilers(planner, plans, toolchains_of(OldCompiler()))
    assert [one.variant for one in (old, new)] == [one.variant for one in plans]
    assert "10.0" in plans[0].archs
    assert "10.0" not in old.archs
    assert new is plans[1]


def test_archs_that_the_user_asks_for_stay(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN, ("9.0",))
    plans = planner.select(Selection(globs=NAMES[:1]))
    (old,) = replan_for_compilers(planner, plans, toolchains_of(OldCompiler()))
    assert old.archs == ("9.0",)


def test_names_stay_while_files_are_edited_in_development(project) -> None:
    made = project(BINDING, kernel("cpu"))
    git(made.root, "init", "-q")
    commit(made.root)

    def names(*, dev: bool) -> tuple[str, bool]:
        first, *_ = Planner(made, SourceTree(made.root), LocalRunner(), dev=dev).select(Selection())
        return first.ops_name, first.dirty

    development, clean = names(dev=True), names(dev=False)
    assert development == ("_my_kernel_cpu_dev", False)
    assert not clean[1]
    (made.root / "build.toml").write_text((made.root / "build.toml").read_text() + "\n")
    assert names(dev=True) == (development[0], True)
    assert names(dev=False) == (f"{clean[0]}_dirty", True)


def test_an_id_that_was_given_is_the_name_in_development(project) -> None:
    given = Identity("mine_dirty", "f" * 40, dirty=True)
    made = project(BINDING, kernel("cpu"))
    assert Planner(made, SourceTree(made.root), LocalRunner(), given, dev=True).identity is given


class CountedToolchains(ToolchainSource):
    """This machine's toolchains, and how often each question about a backend was asked."""

    name = "counted"

    def __init__(self, source: ToolchainSource) -> None:
        self.source, self.asked = source, Counter[tuple[str, str]]()

    def unsupported_reason(self, requires: Requirements) -> str | None:
        self.asked["unsupported_reason", requires.backend] += 1
        return self.source.unsupported_reason(requires)

    def compiler(self, requires: Requirements) -> str | None:
        self.asked["compiler", requires.backend] += 1
        return self.source.compiler(requires)

    def provision(self, requires: Requirements) -> Toolchain:
        self.asked["provision", requires.backend] += 1
        return self.source.provision(requires)


class CountedRunner(LocalRunner):
    """Which commands of git were started, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.git = Counter[str]()

    def run(self, argv, **settings):
        if Path(argv[0]).name == "git":
            self.git[" ".join(argv)] += 1
        return super().run(argv, **settings)


def test_a_build_asks_for_each_toolchain_and_plans_each_variant_once(project, monkeypatch) -> None:
    made = project("\n[torch-noarch]\n", backends=("cpu", "cuda"))
    git(made.root, "init", "-q")
    commit(made.root)
    tools, plans, runner = [], Counter[str](), CountedRunner()
    make_plan, make_sources = planning._make_plan, toolchains._sources

    def counted_sources(*args) -> list[CountedToolchains]:
        host, _ = make_sources(*args)
        tools.append(CountedToolchains(host))
        return tools[-1:]

    def counted_plan(planner, choice, compiler):
        plans[str(choice.variant)] += 1
        return make_plan(planner, choice, compiler)

    monkeypatch.setattr(toolchains, "_sources", counted_sources)
    monkeypatch.setattr(planning, "_make_plan", counted_plan)
    services = Services(runner, Ui(), made.root.parent / "cache")
    for status in ("built", "up-to-date"):
        results = build(made, BuildOptions(toolchain="host"), services)
        assert [result.status for result in results] == [status] * 2
        questions = ("unsupported_reason", "compiler", "provision")
        assert tools[-1].asked == {(q, name): 1 for q in questions for name in ("cpu", "cuda")}
        assert plans == dict.fromkeys(("torch-cpu", "torch-cuda"), 1)
        assert sum(n for argv, n in runner.git.items() if "rev-parse HEAD" in argv) == 1
        plans.clear()
        runner.git.clear()


def test_a_planner_plans_a_variant_once_for_each_compiler(project) -> None:
    made = project(BINDING, kernel("cuda"), backends=("cuda",))
    planner = Planner(made, SourceTree(made.root), LocalRunner(), CLEAN)
    (plan,) = planner.select(Selection(globs=NAMES[:1]))
    choices = [choice for choice in project_variants(made) if str(choice.variant) == NAMES[0]]
    assert planner.plans(choices)[0] is plan
    (old,) = planner.plans(choices, {NAMES[0]: "12.4"})
    assert old != plan
    assert planner.plans(choices, {NAMES[0]: "12.4"})[0] is old
