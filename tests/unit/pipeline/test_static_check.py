"""`kbuild check` on a small project: a C++ compiler, and headers from tiny wheels."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.pipeline.static_check import StaticCheckOptions, backends_needing_a_build, check_sources
from kbuild.project import open_project
from kbuild.runtime.processes import LocalRunner, ProcessResult
from kbuild.selection import Selection
from kbuild.services import Services
from kbuild.static.includes import SourceVerdict
from kbuild.toolchains.wheels.lock import LockedRelease, ToolchainLock
from kbuild.ui import Ui
from kbuild.version import Version
from tests.support.toolkit_wheels import fill
from tests.support.wheel_index import Served, make_wheel, pinned, serve

pytestmark = [
    pytest.mark.compile,
    pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler"),
]
BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "xpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.demo-cpu]
backend = "cpu"
depends = ["torch"]
src = ["src/cpu.cpp"]

[kernel.demo]
backend = "xpu"
depends = ["torch"]
include = ["src"]
src = ["src/k.cpp", "src/k.h"]
"""
FILES = {
    "torch-ext/demo/__init__.py": "__all__ = ['one']\none = 1\n",
    "torch-ext/binding.cpp": """\
#include <torch/library.h>
#include "registration.h"
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
""",
    "src/cpu.cpp": "this is not looked at\n",
    "src/k.h": "#pragma once\ninline int one() { return 1; }\n",
    "src/k.cpp": """\
#include <torch/library.h>
#include <c10/xpu/impl/xpu_cmake_macros.h>
#include <sycl/sycl.hpp>
#include "k.h"
#if !defined(XPU_KERNEL) || !defined(USE_XPU) || !defined(SYCL_LANGUAGE_VERSION)
#error macros of the plan
#endif
int run(sycl::queue &queue) { return queue.size() + one(); }
""",
}
SYCL = "namespace sycl { struct queue { int size() const; }; }\n"


class Counting(LocalRunner):
    """Remembers whose types were checked."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[str] = []

    def run(self, argv: Any, **options: Any) -> ProcessResult:
        if "-fsyntax-only" in argv:
            self.checked.append(Path(argv[-1]).name)
        return super().run(argv, **options)


@dataclass
class Bench:
    """A project, an index, a cache."""

    root: Path
    cache: Path
    pins: ToolchainLock
    served: Served
    runner: Counting = field(default_factory=Counting)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def check(self, **selection: Any) -> tuple[SourceVerdict, ...]:
        self.runner.checked.clear()
        options = StaticCheckOptions(
            Selection(**selection),
            python=Path(sys.executable),
            pins=self.pins,
            settings=self.served.settings,
        )
        services = Services(self.runner, Ui(verbosity=-2), self.cache)
        return check_sources(open_project(self.root), options, services)

    def one(self) -> SourceVerdict:
        (verdict,) = self.check()
        return verdict


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    shelf, tag = tmp_path / "shelf", "py2.py3-none-manylinux_2_28_x86_64"
    pins = fill(shelf)
    torch = pins.torch["2.14"].wheels
    member = "intel_sycl_rt-2026.1.3.data/data/include/sycl/sycl.hpp"
    wheel = make_wheel(shelf, "intel-sycl-rt", "2026.1.3", {member: SYCL.encode()}, tag=tag)
    # The tiny Torch wheel stands for the release that XPU variants are of.
    pins = replace(
        pins,
        torch={"2.15": LockedRelease("2.15.1", torch)},
        headers={"sycl": {"2026.1": pinned(wheel)}},
    )
    with serve(shelf) as served:
        bench = Bench(tmp_path / "demo", tmp_path / "cache", pins, served)
        for path, text in {"build.toml": BUILD, **FILES}.items():
            bench.write(path, text)
        yield bench


def test_the_newest_torch_of_the_backends_that_ask_for_it(bench: Bench) -> None:
    verdict = bench.one()
    assert verdict.findings == ()
    assert (verdict.variant, verdict.state) == ("torch215-cxx11-xpu20261-x86_64-linux", "ok")
    assert sorted(bench.runner.checked) == ["binding.cpp", "k.cpp"]
    assert (verdict.units, verdict.remembered) == (2, 0)
    assert "Torch 2.15.1, sycl 2026.1.3" in verdict.proved
    assert verdict.unproved.startswith("not compiled: needs ")
    assert backends_needing_a_build(open_project(bench.root)) == ("cpu",)


def test_headers_come_by_ranges(bench: Bench) -> None:
    bench.check()
    assert any("intel_sycl_rt" in path for path, asked in bench.served.requests if asked)
    assert bench.served.whole() == []


def test_an_error_has_its_line(bench: Bench) -> None:
    bench.write("src/k.cpp", FILES["src/k.cpp"].replace("queue.size", "queue.sice"))
    verdict = bench.one()
    assert verdict.state == "broken"
    (found,) = verdict.findings
    assert (found.check, found.severity, found.where) == ("types", "error", "src/k.cpp:8")
    assert "sice" in found.what


def test_a_missing_header_has_its_line(bench: Bench) -> None:
    bench.write("src/k.h", '#pragma once\n#include "gone.h"\n')
    (found,) = bench.one().findings
    assert found.where == "src/k.h:2"
    bench.write("src/gone.h", "inline int one() { return 2; }\n")
    assert bench.one().state == "ok"


def test_nothing_is_checked_twice(bench: Bench) -> None:
    bench.check()
    again = bench.one()
    assert bench.runner.checked == []
    assert (again.state, again.units, again.remembered) == ("ok", 2, 2)
    bench.write("src/k.h", FILES["src/k.h"].replace("return 1", "return 11"))
    assert bench.one().remembered == 1
    assert bench.runner.checked == ["k.cpp"]


def test_errors_are_remembered_too(bench: Bench) -> None:
    bench.write("src/k.cpp", FILES["src/k.cpp"].replace("one()", "two()"))
    first = bench.one()
    again = bench.one()
    assert bench.runner.checked == []
    assert again.findings == first.findings != ()


def test_a_project_may_move(bench: Bench, tmp_path: Path) -> None:
    bench.check()
    bench.root = bench.root.rename(tmp_path / "moved")
    assert bench.one().remembered == 2


def test_without_a_cache_everything_is_checked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBUILD_CACHE", "off")
    bench.check()
    assert bench.one().remembered == 0


def test_other_releases_on_request(bench: Bench) -> None:
    old, new = bench.check(torch=(Version.parse("2.12"), Version.parse("2.15")))
    assert (old.variant, old.state) == ("torch212-cxx11-xpu20253-x86_64-linux", "unchecked")
    assert old.error
    assert "Torch 2.12 is not in the lock" in old.unproved
    assert (new.variant, new.state) == ("torch215-cxx11-xpu20261-x86_64-linux", "ok")


def test_headers_that_are_not_pinned(bench: Bench) -> None:
    bench.pins = replace(bench.pins, headers={})
    verdict = bench.one()
    assert verdict.state == "unchecked"
    assert "sycl 2026.1 is not in the lock" in verdict.unproved
