"""Every problem comes at once, says where it is and what is allowed, in each edition."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError
from kbuild.system.sourcetree import SourceTree

GOLDEN = Path(__file__).parents[3] / "golden" / "config"
SOURCES = dict.fromkeys(
    (
        "torch-ext/torch_binding.cpp",
        "torch-ext/torch_binding.h",
        "relu_cpu/relu.cpp",
        "relu_cuda/relu.cu",
    ),
    "",
)
MINIMAL = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
"""


def test_eight_mistakes(say):
    text = (GOLDEN / "eight_mistakes.toml").read_text()
    problems = say(text, SOURCES)
    assert len(problems) == 8
    shown = "\n".join(map(str, problems)) + "\n"
    golden = GOLDEN / "eight_mistakes.txt"
    if os.environ.get("KBUILD_UPDATE_GOLDEN"):
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_warnings_accompany_errors(said):
    text = said(MINIMAL.replace('"MIT"', '""') + 'minver = "2.11"\n')
    assert "build.toml:5: general.license: is empty" in text
    assert "build.toml:9: warning: torch.minver: leaves out Torch releases" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "build.toml: is empty"),
        ("\n  \n", "build.toml: is empty"),
        ("[general\n", "build.toml:1: not valid TOML"),
        ('[general]\nname = "x\n', "build.toml:2: not valid TOML"),
        ("[general]\nname = relu\n", "build.toml:2: not valid TOML: Invalid value (column 8)"),
        ("a = 1\na = 2\n", "build.toml:2: not valid TOML: Cannot overwrite a value"),
        ("a = [1,\n\n", "before the end of the file"),
        (b"# caf\xe9\n", "build.toml:1: byte 0xe9 is not UTF-8"),
        (b"\xef\xbb\xbf[general]\n", "build.toml:1: starts with a byte-order mark"),
        ("a = " + "9" * 5000, "build.toml: not valid TOML"),
        ("a = 0x" + "f" * 5000, "build.toml: not valid TOML: an integer has more than 64 bits"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("# only a comment\n", "build.toml: general: is missing"),
        ("general = 3\n", "build.toml:1: general: must be a table, not an integer"),
        ("[general]\n", "build.toml:1: general.name: is missing"),
        ("[[general]]\n", "build.toml:1: general: must be a table, not a list"),
        ("kernel = 1\n", "build.toml:1: kernel: must be a table, not an integer"),
    ],
)
def test_files_that_cannot_be_read(said, text, words):
    assert words in said(text)


def test_control_characters_are_written_out(said):
    text = said(MINIMAL.replace('"relu"', '"a\\u001b[31m\\nb"'))
    assert "`a\\x1b[31m\\nb` is not a kernel name" in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("naem = 1", "general.naem: unknown key\n  hint: did you mean `name`?"),
        ("zzzz = 1", "general.zzzz: unknown key\n  hint: allowed: `backends`,"),
        ("python-depends = 3", "general.python-depends: must be a list, not an integer"),
        ('python-depends = "einops"', "must be a list, not a string\n  hint: write it as a list"),
        ("python-depends = [1]", "general.python-depends: must be a string, not an integer"),
        ("hub = 1979-05-27", "general.hub: must be a table, not a date"),
        ("hub = { repo_id = 'a/b' }", "general.hub.repo_id: unknown key\n  hint: did you mean `re"),
        ("[general.cuda]\nmaxver = 12.8", "general.cuda.maxver: must be a string, not a float"),
        ("[general.cuda]\nminver = '12.x'", "general.cuda.minver: `12.x` is not a version"),
    ],
)
def test_shapes(said, line, words):
    text = MINIMAL.replace("[torch]", f"{line}\n[torch]")
    assert words in said(text)


def test_versions_have_the_right_type(said):
    text = said(MINIMAL.replace("version = 1", 'version = "1"'))
    assert "general.version: must be an integer, not a string\n  hint: write 1 without" in text
    assert "must be an integer, not a boolean" in said(MINIMAL.replace("= 1", "= true"))
    assert "is -1, and versions are 0 or more" in said(MINIMAL.replace("= 1", "= -1"))
    assert said(MINIMAL.replace("version = 1", "version = 0")) == ""


def test_what_was_looked_at_is_observed(project):
    root = project(MINIMAL + 'src = ["a.cpp"]\ninclude = ["inc"]\n')
    tree = SourceTree(root)
    with pytest.raises(ConfigError):
        open_project(root, tree)
    assert {"build.toml", "a.cpp", "inc", "torch-ext/relu/__init__.py"} <= tree.observed.keys()


def test_a_good_project_is_judged_without_heavy_modules(project):
    root = project(MINIMAL)
    code = "import sys; from pathlib import Path; from kbuild.plan.project import open_project\n"
    code += "open_project(Path.cwd()); print(*sys.modules)"
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"torch", "jinja2", "rich", "tomlkit", "difflib", "kbuild.project.config.locate"}
    assert not heavy & set(done.stdout.split())


def test_a_licence_by_another_name_is_doubtful(project):
    (problem,) = open_project(project(MINIMAL.replace("MIT", "Apache 2.0"))).warnings
    assert str(problem).startswith(
        "build.toml:5: warning: general.license: `Apache 2.0` is not an SPDX expression\n"
        '    license = "Apache 2.0"\n'
        "              ^^^^^^^^^^^^\n"
        "  hint: did you mean `Apache-2.0`?"
    )


GENERAL = """\
[general]
name = "relu"
version = 2
license = "MIT"
backends = ["cpu"]
"""
NOARCH = GENERAL.replace("version = 2\n", "")
ADVICE = "`kbuild check-config --update` rewrites the file to edition 5"


def opened(project, text):
    found = open_project(project(text))
    return found.edition, found.file.framework_key, found.file.general.version


def test_edition_4_opens_with_advice(project, said):
    text = GENERAL + "[torch]\nstable-abi = '2.11'\n"
    assert opened(project, text) == (4, "torch", 2)
    assert f"warning: general: this is an edition 4 file\n  hint: {ADVICE}" in said(text)


@pytest.mark.parametrize(
    ("text", "framework", "version"),
    [(GENERAL, "torch-noarch", 2), (NOARCH, "torch-noarch", 1), (NOARCH + "[torch]\n", "torch", 1)],
)
def test_edition_3_opens_with_advice(project, said, text, framework, version):
    assert opened(project, text) == (3, framework, version)
    assert f"warning: general: this is an edition 3 file\n  hint: {ADVICE}" in said(text)


@pytest.mark.parametrize(
    "framework",
    [
        "[torch]\nstable-abi = { cpu = '2.11' }",
        "[torch]\nscr = []",
        "[torch]\nsrc = 3",
        "[Torch]\nsrc = []",
        "[torch_noarch]",
        "[kernel.relu]\nbackend = 'cpu'\ndepends = []\nsrc = ['a.cpp']",
    ],
)
@pytest.mark.parametrize("general", [GENERAL, NOARCH])
def test_a_broken_file_never_becomes_python_only(project, say, framework, general):
    with pytest.raises(ConfigError):
        open_project(project(general + framework))
    errors = [problem for problem in say(general + framework) if problem.severity == "error"]
    assert errors


@pytest.mark.parametrize(
    "key", ["kernel-depends = []", "[general.tpu]", "[torch]\nstable-abi = { cpu = '2.11' }"]
)
def test_keys_of_edition_5_ask_for_the_edition(said, key):
    text = GENERAL + key + ("" if "[torch]" in key else "\n[torch]")
    assert "since edition 5, and this file has none\n  hint: add `edition = 5`" in said(text)


@pytest.mark.parametrize(
    ("edition", "words"),
    [
        ("0", "there is no edition 0\n  hint: write `edition = 5`"),
        ("-1", "there is no edition -1"),
        ("1", "edition 1 is no longer read by any tool"),
        ("2", "edition 2 is no longer read by any tool"),
        ("3", "edition 3 files do not have an `edition` key\n  hint: remove the line, then run"),
        ("4", "edition 4 files do not have an `edition` key"),
        ("6", "edition 6 is newer than this kbuild, which reads up to 5\n  hint: upgrade kbuild"),
        ("'5'", "must be the integer 5, not a string\n  hint: write `edition = 5`"),
        ("5.0", "must be the integer 5, not a float"),
        ("true", "must be the integer 5, not a boolean"),
        ("[5]", "must be the integer 5, not a list"),
    ],
)
def test_editions_that_are_not_read(said, edition, words):
    text = GENERAL.replace("version = 2", f"version = 2\nedition = {edition}") + "[torch]\n"
    assert f"build.toml:4: general.edition: {words}" in said(text)
