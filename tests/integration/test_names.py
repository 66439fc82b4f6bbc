"""Names of folders and files: those that work are built with, the others are refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_project import CommandProject
from tests.support.tiny_project import BUILD, SOURCES, write_tiny

# What other tools stumble over, all at once.
EVERYWHERE = "-a b#c%d$e$$f~g!h'i(j)k{l}m^n@o@p=q+r:s*t?u`v&w [x] é日本"
FOLDER = f"{EVERYWHERE}\t\x01\x7f\u2028."
SOURCE = f'{EVERYWHERE}"<>,]]]=]${{X}}$ENV{{HOME}}'
PACKAGED = f"{EVERYWHERE}<>,|]\t\n"


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.usefixtures("need_torch")
def test_odd_names_are_built_with(tmp_path: Path) -> None:
    plain = write_tiny(tmp_path, "cpu")
    root = tmp_path / FOLDER
    plain.root.rename(root)
    source, text = SOURCES["cpu"]
    odd = f"src {SOURCE}/{SOURCE}.cpp"
    listed = json.dumps(odd, ensure_ascii=False)
    flags = f"include = [{json.dumps(f'include {SOURCE}', ensure_ascii=False)}]"
    build = BUILD.format(backend="cpu", flags=flags, source="S").replace('"S"', listed)
    (root / "build.toml").write_text(build, "utf-8")
    (root / source).unlink()
    for name, content in (
        (odd, f'#include "own.h"\n{text}'),
        (f"include {SOURCE}/own.h", "#pragma once\n"),
        (f"torch-ext/tiny/{PACKAGED}.py", ""),
    ):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content, "utf-8")
    built = CommandProject(root, plain.cache).built()
    assert built["status"] == "built"
    assert (Path(built["path"]) / f"{PACKAGED}.py").is_file()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(('a"b', '`"`'), ("a;b", "`;`"), ("a<b", "`<`"), ("a>b", "`>`"), ("a\\b", "`\\`")),
        *(("a,b", "`,`"), ("a|b", "`|`"), ("a$<1:x>", "`$<`"), ("a${X}", "`${`")),
        *(("$ENV{HOME}", "`$ENV{`"), ("a[b", "an odd square bracket"), ("a\nb", "a line break")),
        *(("a\rb", "a line break"), ("a ", "white space at the end")),
        ("a\udcff", "bytes that are not UTF-8"),
    ],
)
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_folder_that_cmake_cannot_take(tmp_path: Path, name: str, words: str) -> None:
    plain = write_tiny(tmp_path, "cpu")
    root = tmp_path / name
    plain.root.rename(root)
    done = CommandProject(root, plain.cache).kbuild("create-pyproject", expect=2)
    assert f"the path has {words}, which CMake or ninja cannot take" in done.stderr
    assert "hint: rename the folder" in done.stderr
    assert sorted(path.name for path in root.iterdir()) == [
        *(".git", ".gitignore", "build.toml", "cpu", "torch-ext")
    ]


@pytest.mark.parametrize("name", ['a"b', "a;b", "a\\b", "a$<1:x>", "a${X}b"])
def test_a_file_that_cmake_cannot_install(tmp_path: Path, name: str) -> None:
    bench = write_tiny(tmp_path, "cpu")
    (bench.root / "torch-ext" / "tiny" / f"{name}.py").touch()
    done = bench.kbuild("create-pyproject", expect=2)
    assert f"`torch-ext/tiny/{name}.py` cannot be packaged" in done.stderr
