"""Which source serves a variant, and why: the order of sources, given wheels, and headers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbuild.pipeline.options import BuildOptions
from kbuild.pipeline.toolchains import Toolchains, find_toolchains, unsupported_plan_reason
from kbuild.plan.plan import Requirements
from kbuild.project.variant import System, host_system
from kbuild.system.errors import ToolchainError
from kbuild.system.services import Services
from kbuild.system.store import Store
from kbuild.system.ui import Ui
from kbuild.toolchains.dependency_headers.search import HeaderResolver
from tests.support.cutlass_trees import FakeGit, make_tree
from tests.support.fake_emulator import OTHER_CPU
from tests.support.fake_machine import (
    FakeSource,
    fake_rocm,
    fake_torch,
    full,
    machine,
    stable,
    toolchains,
)

SYSTEM = "x86_64-linux"
CUDA = Requirements("cuda", toolkit="13.0")
OTHER = f"{OTHER_CPU}-linux"


class TestOrder:
    def test_the_first_that_fits_provides(self) -> None:
        sources = FakeSource("host", "no nvcc"), FakeSource("wheels"), FakeSource("third")
        assert toolchains(*sources).unsupported_reason(CUDA) is None
        assert toolchains(*sources).provision(CUDA).source == "wheels"

    @pytest.mark.parametrize(
        ("sources", "reason"),
        [
            ([("host", "no nvcc"), ("wheels", "offline")], "host: no nvcc; wheels: offline"),
            ([("host", "needs aarch64"), ("wheels", "needs aarch64")], "needs aarch64"),
            ([("host", "no nvcc"), ("rocm", "for ROCm only", "rocm")], "no nvcc"),
            ([("rocm", "for ROCm only", "rocm")], "for ROCm only"),
        ],
        ids=["each", "each once", "only of those that could have served", "the only source"],
    )
    def test_reasons(self, sources, reason) -> None:
        box = toolchains(*(FakeSource(*source) for source in sources))
        assert box.unsupported_reason(CUDA) == reason
        with pytest.raises(ToolchainError, match=f"no toolchain fits: {reason}"):
            box.provision(CUDA)

    @pytest.mark.parametrize(
        ("language", "system", "reason"),
        [
            ("cute", OTHER, "images of kernel.scale (cute) have host code"),
            ("tilelang", OTHER, None),
            ("triton", OTHER, None),
            ("ninetoothed", OTHER, None),
            ("cute", str(host_system()), None),
            ("cute", None, None),
        ],
    )
    def test_images_with_host_code_are_for_this_machine(self, language, system, reason) -> None:
        kernel = SimpleNamespace(name="scale", language=language)
        plan = SimpleNamespace(requires=replace(CUDA, system=system), aot=(kernel,))
        found = unsupported_plan_reason(toolchains(FakeSource("wheels")), plan)
        assert found is None if reason is None else reason in found


NEEDS = Requirements("cpu", torch="2.13", libraries=("cutlass_3_8",))


class TestHeaders:
    """The headers that a kernel depends on, beside whatever compiles."""

    @staticmethod
    def box(folder: Path, reason: str | None = None, **given: Path) -> Toolchains:
        headers = HeaderResolver(given, folder / "cache", FakeGit(), {"PATH": ""})
        return Toolchains((FakeSource("host", reason),), headers)

    def test_they_are_facts_and_versions(self, tmp_path: Path) -> None:
        tree = make_tree(tmp_path / "mine")
        box = self.box(tmp_path, cutlass_3_8=tree)
        assert box.unsupported_reason(NEEDS) is None
        made = box.provision(NEEDS)
        folders = f"{tree}/include;{tree}/tools/util/include"
        assert made.cache == (("A", "1"), ("KBUILD_CUTLASS_3_8_INCLUDE_DIRS", folders))
        assert made.compilers == (("c++", "12"),)
        (compiler, (name, version)) = made.summary.versions
        assert (compiler, name) == (("c++", "12"), "cutlass_3_8")
        assert version.startswith(f"3.8.0 ({tree}, sha256 ")

    def test_another_content_is_another_fingerprint(self, tmp_path: Path) -> None:
        tree = make_tree(tmp_path / "mine")
        before = self.box(tmp_path, cutlass_3_8=tree).provision(NEEDS).fingerprint
        (tree / "include" / "new.h").write_text("")
        assert self.box(tmp_path, cutlass_3_8=tree).provision(NEEDS).fingerprint != before

    def test_the_reason_of_the_compilers_comes_first(self, tmp_path: Path) -> None:
        assert self.box(tmp_path, "no nvcc").unsupported_reason(NEEDS) == "no nvcc"
        needs = replace(NEEDS, libraries=("cutlass_4_0",))
        assert "CUTLASS 4.0.0" in str(self.box(tmp_path).unsupported_reason(needs))

    def test_planning_fetches_nothing(self, tmp_path: Path) -> None:
        summary = self.box(tmp_path).preview(NEEDS)
        version = dict(summary.versions)["cutlass_3_8"]
        assert (summary.versions[0], summary.fingerprint) == (("c++", "12"), "")
        assert version == "3.8.0 (nvidia-cutlass 3.8.0.0 of the package index, sha256 013147221a63)"
        assert not (tmp_path / "cache").exists()

    def test_the_release_may_depend_on_the_compiler(self, tmp_path: Path) -> None:
        box = self.box(tmp_path)
        needs = Requirements("xpu", toolkit="2025.3", libraries=("sycl_tla",))
        assert dict(box.preview(needs).versions)["sycl_tla"].startswith("0.8 (sycl-tla 0.8.0 ")
        with pytest.raises(ToolchainError, match="no release"):
            box.preview(replace(needs, toolkit=None))

    def test_the_fingerprint_does_not_tell_where_the_store_is(self, tmp_path: Path) -> None:
        git = FakeGit(make_tree(tmp_path / "remote"), ("v3.8.0",))
        env = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1"}
        folders = [tmp_path / "one", tmp_path / "two"]
        made = [
            Toolchains((FakeSource("host"),), HeaderResolver({}, folder, git, env)).provision(NEEDS)
            for folder in folders
        ]
        assert made[0].cache != made[1].cache
        assert made[0].fingerprint == made[1].fingerprint
        for folder in folders:
            Store(folder / "store").prune(0)


class Machine:
    """A Torch for the CPU, and what a test adds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        host, self.runner = machine(folder, fake_torch(folder))
        self.python = host.python
        self.cache = folder / "cache"
        monkeypatch.setenv("ROCM_PATH", str(folder / "none"))

    def has_rocm(self) -> None:
        self.monkeypatch.setenv("ROCM_PATH", str(fake_rocm(self.folder / "rocm", "7.2.1")))

    def tools(self):
        return find_toolchains(
            BuildOptions(python=self.python), Services(self.runner, Ui(), self.cache)
        )


@pytest.fixture
def here(tmp_path, monkeypatch) -> Machine:
    for module in ("toolchains.host", "pipeline.toolchains"):
        monkeypatch.setattr(f"kbuild.{module}.host_system", lambda: System.parse(SYSTEM))
    return Machine(tmp_path, monkeypatch)


def test_an_installed_rocm_serves_any_torch_for_the_stable_abi_alone(here):
    here.has_rocm()
    toolchain = here.tools().provision(stable())
    assert (toolchain.source, dict(toolchain.versions)["torch"]) == ("rocm", "2.13.0+cpu")
    reason = here.tools().unsupported_reason(full())
    assert "needs Torch 2.13 built for ROCm 7.2; " in reason
