"""`kbuild skills`: where each agent's skills go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild.cli import find_command
from kbuild.system.rendering import template_root

SKILLS = sorted(path.parent for path in (template_root() / "skills").glob("*/SKILL.md"))
FILE = Path("cuda-kernels", "SKILL.md")


def test_folders_of_a_project(kbuild, here):
    answer = kbuild("skills", "add", "--claude", "--opencode", "--dest", "mine")
    folders = [here / ".claude" / "skills", here / ".opencode" / "skills", here / "mine"]
    assert answer.out.split() == [str(folder / "cuda-kernels") for folder in folders]
    assert all((folder / FILE).is_file() for folder in folders)


def test_folders_of_the_user(kbuild, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert kbuild("skills", "add", "-g", "--claude", "--codex", "--opencode").code == 0
    for folder in (".claude", ".codex", "config/opencode"):
        assert (tmp_path / folder / "skills" / FILE).is_file()


def test_what_is_there_stays(kbuild, here):
    kbuild("skills", "add", "--claude")
    path = here / ".claude" / "skills" / FILE
    path.write_text("mine")
    answer = kbuild("skills", "add", "--claude", "--dest", "other")
    assert answer.code == 7
    assert "--force replaces them" in answer.err
    assert path.read_text() == "mine"
    assert not (here / "other").exists()
    assert kbuild("skills", "add", "--claude", "--force").code == 0
    assert path.read_text() != "mine"


@pytest.mark.parametrize("folder", SKILLS, ids=lambda path: path.name)
def test_skills_say_what_is_true(folder):
    text = (folder / "SKILL.md").read_text()
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", text)
    assert head
    assert head[1] == folder.name
    assert len(head[2]) <= 1024
    commands = re.findall(r"`kbuild ([a-z-]+)", text)
    assert commands
    assert [name for name in commands if find_command(name) is None] == []
