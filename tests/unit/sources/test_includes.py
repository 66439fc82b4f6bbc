from __future__ import annotations

import builtins
import os
from collections import Counter
from pathlib import Path

import pytest

from kbuild.backends.frameworks import FRAMEWORKS
from kbuild.plan.context import source_files
from kbuild.plan.project import open_project
from kbuild.plan.selection import Selection, select_variants
from kbuild.plan.variant import Planner, identify
from kbuild.sources.includes import IncludeGraph
from kbuild.system.processes import LocalRunner
from kbuild.system.sourcetree import SourceTree

MACRO = "TORCH_EXTENSION_NAME"


@pytest.fixture
def put(tmp_path: Path):
    """Writes files; returns the includes of the folder as it is then."""

    def put(**files: str) -> IncludeGraph:
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_h", ".h").replace("_cpp", ".cpp")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return IncludeGraph(SourceTree(tmp_path))

    return put


def test_includes_are_followed_through_the_project_only(put) -> None:
    includes = put(
        k__a_cpp='#include "b.h"\n#include <vector>\n#  include "deep.h"\n#include "/etc/hosts"\n',
        k__b_h='#include "a.cpp"\n#include "../../outside.h"\n int x; #include "no.h"\n',
        k__no_h="",
        inc__deep_h=f"{MACRO}\n",
    )
    found = includes.reachable(["k/a.cpp"], ["inc"])
    assert set(found) == {"k/a.cpp", "k/b.h", "inc/deep.h"}
    assert includes.mention(["k/a.cpp"], ["inc"], MACRO)
    assert not includes.mention(["k/a.cpp"], [], MACRO)
    assert not includes.mention(["k/a.cpp"], ["inc"], "EXTENSION_NAME")


def test_a_name_in_quotes_lies_beside_and_one_in_brackets_on_the_search_path(put) -> None:
    includes = put(
        k__a_cpp='#include "c.h"\n', k__b_cpp="#include <c.h>\n", k__c_h="", inc__c_h="",
        k__d_cpp="#include <e.h>\n", k__e_h="", k__f_cpp='#import "c.h"\n',
    )  # fmt: skip
    assert includes.reachable(["k/a.cpp"], ["inc"])[1:] == ("k/c.h",)
    assert includes.reachable(["k/b.cpp"], ["inc"])[1:] == ("inc/c.h",)
    assert includes.reachable(["k/d.cpp"], ["inc"])[1:] == ("k/e.h",)
    assert includes.reachable(["k/f.cpp"], ["inc"])[1:] == ("k/c.h",)


def test_include_next_is_a_file_of_that_name_in_another_folder(put) -> None:
    includes = put(
        a_cpp="#include <c.h>\n", one__c_h="#include_next <c.h>\n", two__c_h=f"#define N {MACRO}\n"
    )
    assert includes.reachable(["a.cpp"], ["one", "two"]) == ("a.cpp", "one/c.h", "two/c.h")
    assert includes.mention(["a.cpp"], ["one", "two"], MACRO)


def test_files_that_include_each_other_lead_to_what_any_of_them_mentions(put) -> None:
    """Whichever source is asked about first."""
    files = {
        "a_cpp": '#include "b.h"\n',
        "b_h": '#include "c.h"\n#include "d.h"\n',
        "c_h": '#include "b.h"\n',
        "d_h": f"{MACRO}\n",
        "e_cpp": '#include "c.h"\n',
        "f_cpp": "// nothing\n",
        "g_cpp": '#include "f.cpp"\n',
    }
    leading = {"a.cpp", "e.cpp"}
    sources = ["a.cpp", "e.cpp", "f.cpp", "g.cpp"]
    for first in sources:
        includes = put(**files)
        includes.mention([first], (), MACRO)
        assert {source for source in sources if includes.mention([source], (), MACRO)} == leading
        assert includes.mention(sources, (), MACRO)
        assert not includes.mention(["f.cpp", "g.cpp"], (), MACRO)


def test_names_of_op_namespaces_are_seen_with_the_includes() -> None:
    macros = {framework.name_macro for framework in FRAMEWORKS} - {""}
    assert macros
    assert all(macro.endswith("_NAME") for macro in macros)


def test_links_of_folders_lead_to_one_file(put, tmp_path: Path) -> None:
    """A link to its own folder is no endless chain."""
    (tmp_path / "k").mkdir()
    (tmp_path / "k/again").symlink_to(".")
    (tmp_path / "away").symlink_to("k", target_is_directory=True)
    includes = put(
        k__a_cpp='#include "b.h"\n#include <b.h>\n',
        k__b_h='#include "again/b.h"\n#include "c.h"\n',
        k__c_h="",
    )  # fmt: skip
    found = includes.reachable(["k/a.cpp"], ["away", "away/again/again"])
    assert sorted(found) == ["k/a.cpp", "k/b.h", "k/c.h"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files were opened, by their real path."""
    counts: Counter[str] = Counter()
    plain_open, low_open = builtins.open, os.open

    def count(path: object) -> None:
        if isinstance(path, str | os.PathLike):
            counts[os.path.realpath(path)] += 1

    def opens(path, *args, **named):
        count(path)
        return plain_open(path, *args, **named)

    def opens_low(path, *args, **named):
        count(path)
        return low_open(path, *args, **named)

    monkeypatch.setattr(builtins, "open", opens)
    monkeypatch.setattr(os, "open", opens_low)
    return counts


GROUPS, UNITS, HEADERS = 3, 4, 12


def large(root: Path) -> None:
    """Sections with sources that share headers: in chains, in cycles, through a link."""
    sections = []
    for number in range(HEADERS):
        near, far = (number + 1) % HEADERS, (number * 5) % HEADERS
        text = f'#include "h{near}.h"\n#include <common/h{far}.h>\n#include "linked/h{far}.h"\n'
        path = root / f"csrc/common/h{number}.h"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "csrc/common/linked").symlink_to(".")
    for group in range(GROUPS):
        names = [f"csrc/group{group}/unit{number}.cu" for number in range(UNITS)]
        for name in names:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text("#include <common/h0.h>\n#include <cuda_runtime.h>\n")
        for backend in ("cuda", "rocm"):
            listed = ", ".join(f'"{name}"' for name in names)
            sections.append(
                f'[kernel.g{group}-{backend}]\nbackend = "{backend}"\ndepends = ["torch"]\n'
                f'include = ["csrc/group{group}", "csrc"]\nsrc = [{listed}]\n'
            )
    (root / "torch-ext/large").mkdir(parents=True)
    (root / "torch-ext/large/__init__.py").write_text("__all__: list[str] = []\n")
    (root / "torch-ext/binding.cpp").write_text(f"{MACRO}\n")
    general = '[general]\nname = "large"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
    tables = 'backends = ["cuda", "rocm"]\n[torch]\nsrc = ["torch-ext/binding.cpp"]\n'
    (root / "build.toml").write_text(general + tables + "".join(sections))


def test_each_file_is_read_once_for_all_variants(tmp_path: Path, opened: Counter[str]) -> None:
    """Configuration, identity outside git, and the plans of all variants together."""
    large(tmp_path)
    tree = SourceTree(tmp_path)
    opened.clear()
    project = open_project(tmp_path, tree)
    chosen = select_variants(project, Selection())
    assert len(chosen) > 20
    plans = Planner(project, tree, LocalRunner()).plans(chosen)
    assert len(plans) == len(chosen)
    code = {path: n for path, n in opened.items() if path.endswith((".cu", ".h", ".cpp"))}
    assert len(code) == GROUPS * UNITS + HEADERS + 1
    assert set(code.values()) == {1}


def test_what_was_read_before_is_what_is_identified(tmp_path: Path) -> None:
    large(tmp_path)
    tree = SourceTree(tmp_path)
    project = open_project(tmp_path, tree)
    Planner(project, tree, LocalRunner()).plans(select_variants(project, Selection())[:1])
    fresh = SourceTree(tmp_path)
    sources = source_files(project, fresh)
    assert identify(fresh, sources, LocalRunner()) == identify(tree, sources, LocalRunner())


def test_looks_grow_with_the_project_and_not_with_its_variants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the file system; twice the sources of a section, or all variants, change little."""
    large(tmp_path)
    looks = 0
    plain = os.stat

    def counted(*args, **named):
        nonlocal looks
        looks += 1
        return plain(*args, **named)

    def count(variants: int) -> int:
        nonlocal looks
        tree = SourceTree(tmp_path)
        project = open_project(tmp_path, tree)
        chosen = [c for c in select_variants(project, Selection()) if c.variant.backend == "cuda"]
        monkeypatch.setattr(os, "stat", counted)
        looks = 0
        Planner(project, tree, NoGit()).plans(chosen[:variants])
        monkeypatch.setattr(os, "stat", plain)
        return looks

    one, many = count(1), count(16)
    # Of each further variant: whether there is `csrc`, and the Python package.
    assert many - one <= 15 * (2 * GROUPS + 6)


class NoGit:
    """A runner for machines without git."""

    def run(self, argv, **_):
        from kbuild.system.processes import ProcessResult

        return ProcessResult(tuple(argv), 127, "git: not found", 0.0)
