"""`check-config --update` writes edition 5, with comments, order and content as they were."""

from __future__ import annotations

import pytest
import tomli

from kbuild.project.config.load import migrate
from kbuild.project.config.update import update_text
from kbuild.system.errors import ConfigError

V4 = """\
# My kernel.
[general]
name = "relu" # the name
version = 3   # bumped often
license = "MIT"
backends = [
  "cpu", # always
]

# Bindings.
[torch]
src = ["a.cpp"]
"""


def test_edition_4_gains_one_line():
    before, after = V4.splitlines(), update_text(V4).splitlines()
    assert [line for line in after if line not in before] == ["edition = 5"]
    assert after[:5] == [*before[:4], "edition = 5"]
    assert [line for line in after if line != "edition = 5"] == before


def test_edition_3_gains_version_and_framework():
    text = '[general]\nname = "relu"\nlicense = "MIT"\nbackends = ["cuda"]\n'
    assert update_text(text) == (
        '[general]\nname = "relu"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        'backends = ["cuda"]\n\n[torch-noarch]\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        'general.name = "relu"\ngeneral.version = 1 # c\n[torch]\n',
        "[general]\n  name = 'relu'\n  version = 1\n[torch]\n",
        "[general.hub]\nbranch = 'b'\n[torch]\n[general]\nname = 'x'\nversion = 1",
        "['general']\nversion = 1\n[torch]",
        V4.replace("\n", "\r\n"),
        '[general]\nlicense = "MIT"\n\n\n# the end\n',
    ],
)
def test_unusual_files_say_the_same(text):
    updated = update_text(text)
    assert tomli.loads(updated) == migrate(tomli.loads(text)).data
    assert ("\r\n" in updated) == ("\r\n" in text)
    assert updated.count("# c") == text.count("# c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[general]\nname = "relu"\n', "general.license: is missing; edition 3 did not need it"),
        ("[general]\nedition = 6\n", "build.toml:2: general.edition: edition 6 is newer"),
        ("[general]\nedition = 2\n", "build.toml:2: general.edition: edition 2 is no longer"),
        ("[general\n", "build.toml:1: not valid TOML"),
        ("x = 1\n", "general: is missing"),
        ('general = { name = "relu", version = 1 }\n[torch]\n', "by hand"),
    ],
)
def test_what_cannot_be_rewritten(text, words):
    with pytest.raises(ConfigError) as raised:
        update_text(text)
    assert words in str(raised.value)
