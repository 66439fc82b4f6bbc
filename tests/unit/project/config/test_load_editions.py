"""Editions 3, 4 and 5 open; what is wrong in an older file never changes what it means."""

from __future__ import annotations

import pytest

from kbuild.plan.project import open_project
from kbuild.system.errors import ConfigError

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
    [
        (GENERAL, "torch-noarch", 2),
        (NOARCH, "torch-noarch", 1),
        (NOARCH + "[torch]\n", "torch", 1),
    ],
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
