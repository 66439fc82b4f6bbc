"""`build.systems` of `kbuild.toml`."""

from __future__ import annotations

import pytest

from kbuild.plan.project import systems_of_project
from kbuild.project.variant import System
from kbuild.system.errors import ConfigError

ARM = System("aarch64", "linux")


@pytest.mark.parametrize(
    ("text", "systems"),
    [
        ("", set()),
        ("[build]\n", set()),
        ('[allow]\nops = "why"\n', set()),
        ('[build]\nsystems = ["aarch64-linux"]\n', {ARM}),
    ],
)
def test_systems(tmp_path, text, systems) -> None:
    assert systems_of_project(tmp_path) == set()
    (tmp_path / "kbuild.toml").write_text(text)
    assert systems_of_project(tmp_path) == systems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("build = 1\n", "kbuild.toml:1: build: is an integer, not a table"),
        ("[built]\n", "did you mean `build`?"),
        ("[build]\nsystem = []\n", "kbuild.toml:2: build.system: is not a key of `[build]`"),
        ('[build]\nsystems = "aarch64-linux"\n', "is a string, not a list of systems"),
        ('[build]\nsystems = ["arm"]\n', "`arm` is not a system"),
        ("[build]\nsystems = [1]\n", "`1` is not a system"),
    ],
)
def test_errors_have_a_line(tmp_path, text, message) -> None:
    (tmp_path / "kbuild.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        systems_of_project(tmp_path)
    assert message in str(error.value)
