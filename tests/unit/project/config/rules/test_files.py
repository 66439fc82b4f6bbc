"""Sources and include folders exist, stay inside the project and are listed once."""

from __future__ import annotations

import os

import pytest

from kbuild.system.errors import ConfigError

TEXT = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = [{src}]
include = [{include}]
"""
FILES = {
    "torch-ext/relu/__init__.py": "__all__ = []\n",
    "csrc/relu.cpp": "",
    "csrc/deep/relu.h": "",
}


def text(src="", include=""):
    return TEXT.format(src=src, include=include)


@pytest.mark.parametrize("again", ["csrc/relu.cpp", "./csrc//relu.cpp"])
def test_a_source_listed_twice_is_a_warning(said, again):
    found = said(text(f'"csrc/relu.cpp", "{again}"'), FILES)
    assert found.startswith(f"build.toml:9: warning: torch.src: `{again}` is listed twice")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('"relu.cpp"', "`relu.cpp` does not exist\n  hint: did you mean `csrc/relu.cpp`?"),
        (
            '"csrc/rleu.cpp"',
            "`csrc/rleu.cpp` does not exist\n  hint: did you mean `csrc/relu.cpp`?",
        ),
        ('"csrc/*.cpp"', "hint: patterns are not expanded"),
        ('"csrc"', "`csrc` is a folder\n  hint: list the files in it"),
        ('"/etc/passwd"', "`/etc/passwd` is an absolute path\n  hint: paths are relative"),
        ("'C:\\x.cpp'", "has backslashes\n  hint: write `C:/x.cpp`"),
        ("'C:/x.cpp'", "`C:/x.cpp` is an absolute path"),
        ('"~/x.cpp"', "`~/x.cpp` is an absolute path"),
        ('"../x.cpp"', "`../x.cpp` goes up with `..`"),
        ('"csrc/../csrc/relu.cpp"', "goes up with `..`"),
        ('""', "`` is not a path"),
        ('"a\\u0000b"', "`a\\x00b` is not a path"),
        ('"' + "a" * 5000 + '"', "cannot be looked up"),
    ],
)
def test_sources(said, source, words):
    found = said(text(source), FILES)
    assert "build.toml:9: torch.src: " in found
    assert words in found


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ('"csrc/deap"', "`csrc/deap` does not exist\n  hint: did you mean `csrc/deep`?"),
        ('"deep"', "`deep` does not exist\n  hint: did you mean `csrc/deep`?"),
        ('"csrc/relu.cpp"', "`csrc/relu.cpp` is a file, not a folder"),
        ('"/usr/include"', "`/usr/include` is an absolute path"),
        ('".."', "`..` goes up"),
    ],
)
def test_include_folders(said, folder, words):
    found = said(text(include=folder), FILES)
    assert "build.toml:10: torch.include: " in found
    assert words in found


def test_links_may_not_lead_out_of_the_project(said, project, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.cpp").write_text("")
    (tmp_path / "inside.cpp").write_text("")
    (tmp_path / "out.cpp").symlink_to(outside / "x.cpp")
    (tmp_path / "in.cpp").symlink_to(tmp_path / "inside.cpp")
    (tmp_path / "folder").symlink_to(outside)
    found = said(text('"in.cpp", "out.cpp"', '"folder"'), FILES)
    assert "torch.src: `out.cpp` leads out of the project" in found
    assert "torch.include: `folder` leads out of the project" in found
    assert "in.cpp`" not in found.replace("`out.cpp`", "")


def test_a_project_that_is_reached_through_a_link(project, tmp_path, tmp_path_factory):
    from kbuild.plan.project import open_project

    project(text('"csrc/relu.cpp"'), FILES)
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(tmp_path)
    assert open_project(link).name == "relu"


def test_what_lies_in_the_package_is_files_of_the_project(said, project, tmp_path):
    """Not only Python: `pyext` takes what it names, and git's identity all of it."""
    project(text('"csrc/relu.cpp"'), FILES)
    package = tmp_path / "torch-ext" / "relu"
    os.mkfifo(package / "pipe.py")
    (package / "data.json").symlink_to("/etc/passwd")
    (package / "same.py").symlink_to("__init__.py")
    found = said(text('"csrc/relu.cpp"'), FILES)
    assert "torch-ext/relu/pipe.py: `torch-ext/relu/pipe.py` is a named pipe, not a file" in found
    assert "`torch-ext/relu/data.json` leads out of the project" in found
    assert "same.py" not in found


def test_a_folder_behind_a_link_is_not_packaged_and_that_is_said(said, project, tmp_path):
    project(text('"csrc/relu.cpp"'), FILES)
    (tmp_path / "torch-ext/relu/layers").symlink_to("../../csrc")
    found = said(text('"csrc/relu.cpp"'), FILES)
    assert "`torch-ext/relu/layers` is a link to a folder: nothing behind it is packaged" in found


def test_a_header_that_leads_out(project, tmp_path, tmp_path_factory):
    from kbuild.sources.includes import IncludeGraph
    from kbuild.system.sourcetree import SourceTree

    (tmp_path / "csrc").mkdir(parents=True)
    outside = tmp_path_factory.mktemp("outside") / "far.h"
    outside.write_text("")
    (tmp_path / "csrc" / "far.h").symlink_to(outside)
    (tmp_path / "csrc" / "relu.cpp").write_text('#include "far.h"\n')
    with pytest.raises(ConfigError, match=r"`csrc/far.h` leads out of the project"):
        IncludeGraph(SourceTree(tmp_path)).reachable(["csrc/relu.cpp"], ())
