"""The layout check: a folder of the right shape, and every way to be of another."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kbuild.checks.base import Finding, Output
from kbuild.checks.layout import LayoutCheck
from kbuild.project.variant import Variant

Make = Callable[..., Output]


def find(output: Output) -> list[Finding]:
    return list(LayoutCheck().run(output))


def said(output: Output) -> list[tuple[str, str, str]]:
    return [(f.severity, f.where, f.what) for f in find(output)]


def test_the_package_nested_in_itself(noarch: Make) -> None:
    output = noarch({"relu/__init__.py": "", "relu/x.py": ""})
    found = said(output)
    assert found == [("warning", "relu/__init__.py", "the kernel's package is nested in itself")]


def test_a_folder_named_as_another_variant(noarch: Make) -> None:
    output = replace(noarch(), variant=Variant.parse("torch-cuda"))
    assert said(output) == [
        ("error", ".", "the folder is named `torch-cpu`, but holds `torch-cuda`")
    ]


def test_links(noarch: Make, tmp_path: Path) -> None:
    output = noarch({"real.txt": ""})
    (tmp_path / "outside").write_text("")
    (output.root / "inside").symlink_to("real.txt")
    (output.root / "out").symlink_to(tmp_path / "outside")
    (output.root / "gone").symlink_to("nothing")
    (output.root / "elsewhere").symlink_to(tmp_path)
    (output.root / "sub").mkdir()
    (output.root / "sub" / "data").write_text("")
    (output.root / "here").symlink_to("sub")
    assert [where for _, where, _ in said(output)] == ["elsewhere", "gone", "here", "out"]


def test_pipes_and_empty_folders(noarch: Make) -> None:
    output = noarch({})
    os.mkfifo(output.root / "module.py")
    (output.root / "sub").mkdir()
    assert [(where, what) for _, where, what in said(output)] == [
        ("module.py", "is a named pipe"),
        ("sub", "is an empty folder"),
    ]


def test_a_variant_for_tuning(noarch: Make) -> None:
    (finding,) = find(noarch({"aot.json": "{}"}))
    assert (finding.severity, finding.where) == ("warning", "aot.json")
    assert "--keep-all" in finding.hint
