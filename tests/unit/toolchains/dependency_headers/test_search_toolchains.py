from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kbuild.plan.plan import Requirements
from kbuild.system.errors import ToolchainError
from kbuild.system.store import Store
from kbuild.toolchains.base import Toolchain, ToolchainSource
from kbuild.toolchains.dependency_headers.search import HeaderResolver, ToolchainsWithHeaders
from tests.support.cutlass_trees import FakeGit, make_tree

NEEDS = Requirements("cpu", torch="2.13", libraries=("cutlass_3_8",))


class Compilers(ToolchainSource):
    """Refuses headers, as sources of compilers do."""

    name = "host"

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason

    def refuses(self, requires: Requirements) -> str | None:
        return self.reason or ("needs headers" if requires.libraries else None)

    def provision(self, requires: Requirements) -> Toolchain:
        assert not requires.libraries
        tools = (Path("cmake"), Path("ninja"), Path("python"))
        return Toolchain("host", *tools, cache=(("A", "1"),), versions=(("c++", "12"),))


def sources(tmp_path: Path, given: dict[str, Path] | None = None) -> HeaderResolver:
    return HeaderResolver(given or {}, tmp_path / "cache", FakeGit(), {"PATH": ""})


def test_headers_are_facts_and_versions(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "mine")
    both = ToolchainsWithHeaders(Compilers(), sources(tmp_path, {"cutlass_3_8": tree}))
    assert both.refuses(NEEDS) is None
    made = both.provision(NEEDS)
    folders = f"{tree}/include;{tree}/tools/util/include"
    assert made.cache == (("A", "1"), ("KBUILD_CUTLASS_3_8_INCLUDE_DIRS", folders))
    assert made.compilers == (("c++", "12"),)
    (compiler, (name, version)) = made.summary.versions
    assert (compiler, name) == (("c++", "12"), "cutlass_3_8")
    assert version.startswith(f"3.8.0 ({tree}, sha256 ")


def test_another_content_is_another_fingerprint(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "mine")
    before, after = [], []
    for found in (before, after):
        both = ToolchainsWithHeaders(Compilers(), sources(tmp_path, {"cutlass_3_8": tree}))
        found.append(both.provision(NEEDS).fingerprint)
        (tree / "include" / "new.h").write_text("")
    assert before != after


def test_without_headers_nothing_is_added(tmp_path: Path) -> None:
    plain = replace(NEEDS, libraries=())
    both = ToolchainsWithHeaders(Compilers(), sources(tmp_path))
    assert both.refuses(plain) is None
    assert both.provision(plain) == Compilers().provision(plain)
    assert both.preview(plain) == Compilers().preview(plain)


def test_the_compilers_speak_first(tmp_path: Path) -> None:
    both = ToolchainsWithHeaders(Compilers("no nvcc"), sources(tmp_path))
    assert both.refuses(NEEDS) == "no nvcc"
    needs = replace(NEEDS, libraries=("cutlass_4_0",))
    assert "CUTLASS 4.0.0" in str(
        ToolchainsWithHeaders(Compilers(), sources(tmp_path)).refuses(needs)
    )


def test_planning_fetches_nothing(tmp_path: Path) -> None:
    both = ToolchainsWithHeaders(Compilers(), sources(tmp_path))
    summary = both.preview(NEEDS)
    version = dict(summary.versions)["cutlass_3_8"]
    assert (summary.versions[0], summary.fingerprint) == (("c++", "12"), "")
    assert version == "3.8.0 (nvidia-cutlass 3.8.0.0 of the package index, sha256 013147221a63)"
    assert not (tmp_path / "cache").exists()


def test_the_release_may_depend_on_the_compiler(tmp_path: Path) -> None:
    needs = Requirements("xpu", toolkit="2025.3", libraries=("sycl_tla",))
    both = ToolchainsWithHeaders(Compilers(), sources(tmp_path))
    assert dict(both.preview(needs).versions)["sycl_tla"].startswith("0.8 (sycl-tla 0.8.0 ")
    with pytest.raises(ToolchainError, match="no release"):
        both.preview(replace(needs, toolkit=None))


def test_the_fingerprint_does_not_tell_where_the_store_is(tmp_path: Path) -> None:
    git = FakeGit(make_tree(tmp_path / "remote"), ("v3.8.0",))
    env = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1"}
    made = [
        ToolchainsWithHeaders(Compilers(), HeaderResolver({}, tmp_path / name, git, env)).provision(
            NEEDS
        )
        for name in ("one", "two")
    ]
    assert made[0].cache != made[1].cache
    assert made[0].fingerprint == made[1].fingerprint
    for name in ("one", "two"):
        Store(tmp_path / name / "store").prune(0)
