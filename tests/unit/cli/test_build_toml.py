"""check-config, also of tuned tables, and fill-card."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbuild.ops.tuned_tables import TunedRow, TunedTable, table_text

OLD = """\
# my kernel
[general]
name = "demo"
version = 1
license = "Apache-2.0"
backends = ["cuda"] # one

[torch-noarch]
"""


def test_valid(kbuild, demo):
    first, again = kbuild("check-config", "demo"), kbuild("check-config", "demo")
    assert (first.code, first.out) == (0, "")
    assert first == again


def test_invalid(kbuild, demo):
    file = demo / "build.toml"
    file.write_text(file.read_text().replace("version = 1", "versoin = 1"))
    first, again = kbuild("check-config", "demo"), kbuild("check-config", "demo")
    assert first.code == 3
    assert "demo/build.toml:3: general.versoin: unknown key" in first.err
    assert "did you mean `version`?" in first.err
    assert first == again


def test_json(kbuild, demo):
    assert kbuild("check-config", "demo", "--json").json == {"ok": True, "problems": []}
    (demo / "build.toml").write_text("")
    answer = kbuild("check-config", "demo", "--json")
    assert answer.code == 3
    assert answer.json["ok"] is False
    assert answer.json["problems"][0]["severity"] == "error"


def test_an_edit_is_noticed(kbuild, demo):
    assert kbuild("check-config", "demo").code == 0
    (demo / "build.toml").write_text("[general]\n")
    assert kbuild("check-config", "demo").code == 3


def test_update_build(kbuild, demo):
    (demo / "build.toml").write_text(OLD)
    (demo / "build.toml").chmod(0o600)
    answer = kbuild("update-build", "demo")
    assert (answer.code, answer.out) == (0, "")
    text = (demo / "build.toml").read_text()
    assert "# my kernel" in text
    assert 'backends = ["cuda"] # one' in text
    assert "edition = 5" in text
    assert (demo / "build.toml").stat().st_mode & 0o777 == 0o600
    assert kbuild("update-build", "demo", "--json").json["changed"] is False


def test_update_build_keeps_line_ends_and_links(kbuild, demo):
    (demo / "real.toml").write_bytes(OLD.replace("\n", "\r\n").encode())
    (demo / "build.toml").unlink()
    (demo / "build.toml").symlink_to("real.toml")
    assert kbuild("update-build", "demo").code == 0
    assert (demo / "build.toml").is_symlink()
    data = (demo / "real.toml").read_bytes()
    assert b"edition = 5\r\n" in data
    assert data.count(b"\n") == data.count(b"\r\n")


def test_schema(kbuild):
    answer = kbuild("schema")
    assert answer.code == 0
    assert answer.json["title"] == "build.toml"


def test_fill_card_needs_a_repository(kbuild, demo):
    (demo / "CARD.md").write_text("# {{ repo_id }}\n")
    answer = kbuild("fill-card", "demo")
    assert answer.code == 3
    assert "general.hub.repo-id" in answer.err


def test_fill_card(kbuild, demo, here):
    with (demo / "build.toml").open("a") as file:
        file.write('[general.hub]\nrepo-id = "org/demo"\n')
    template = "# {{ repo_id }}: {{ functions | join(', ') }}\n"
    (demo / "CARD.md").write_text(template)
    answer = kbuild("fill-card", "demo")
    assert "\n# org/demo: one\n" in answer.out
    assert kbuild("fill-card", "demo", "README.md").code == 0
    assert (here / "README.md").read_text() == answer.out.removesuffix("\n") + "\n"
    assert kbuild("fill-card", "demo", "demo/CARD.md").code == 2
    assert (demo / "CARD.md").read_text() == template


@pytest.fixture
def card(demo, here):
    """`demo` with a template, and where its card goes."""
    with (demo / "build.toml").open("a") as file:
        file.write('[general.hub]\nrepo-id = "org/demo"\n')
    (demo / "CARD.md").write_text("# {{ name }}\n")
    return here / "README.md"


def test_fill_card_replaces_no_file_of_others(kbuild, card):
    card.write_text("Mine.\n")
    answer = kbuild("fill-card", "demo", "README.md")
    assert answer.code == 7
    assert card.read_text() == "Mine.\n"
    assert kbuild("fill-card", "demo", "README.md", "--force").code == 0
    assert "# demo" in card.read_text()


def test_fill_card_keeps_what_was_edited(kbuild, card):
    kbuild("fill-card", "demo", "README.md")
    card.write_text(card.read_text().replace("# demo", "# Demo"))
    answer = kbuild("fill-card", "demo", "README.md")
    assert "was edited by hand" in answer.err
    assert "# Demo" in card.read_text()


def test_problems_show_their_line_also_from_the_cache(kbuild, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.toml").write_text('[general]\nname = "x"\n')
    shown = 'build.toml:2: general.name: `x` is not a kernel name\n    name = "x"\n           ^^^\n'
    first, second = kbuild("check-config"), kbuild("check-config", "--json")
    assert shown in first.err
    assert shown in second.err
    (problem, *_) = [p for p in json.loads(second.out)["problems"] if p["key"] == "general.name"]
    assert (problem["column"], problem["length"], problem["source"]) == (8, 3, 'name = "x"')


TUNED = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]

[kernel.add]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["add.py"]

[[kernel.add.op]]
schema = "add(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
configs = [{ BLOCK = 1024, num_warps = 4 }]
grid = ["cdiv(N, BLOCK)"]
key = ["N"]
"""
DTYPES = (("x", "float32"), ("out", "float32"))
ROW = TunedRow("add", "add", 0, DTYPES, (64,), (("BLOCK", 1024),), (("num_warps", 4),), 1.0, 2.0)


@pytest.fixture
def judge(kbuild, here):
    (here / "build.toml").write_text(TUNED)
    (here / "add.py").write_text("")
    package = here / "torch-ext" / "demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Demo."""\n\n__all__ = ["one"]\n\none = 1\n')
    (here / "tuned").mkdir()

    def run(text: str | TunedTable):
        text = table_text(text) if isinstance(text, TunedTable) else text
        (here / "tuned" / "nvidia-h200.json").write_text(text)
        return kbuild("check-config")

    return run


def table(*rows: TunedRow) -> TunedTable:
    return TunedTable("NVIDIA H200", "sm_90", rows)


def test_a_broken_one_is_an_error_with_its_line(judge):
    answer = judge(table_text(table(ROW)).replace('"launch": 0', '"launch": "x"'))
    assert answer.code == 3
    assert "tuned/nvidia-h200.json:8: rows[0]: `launch` is missing" in answer.err
    assert "`kbuild tune` again" in answer.err


def test_a_row_that_means_nothing_is_a_warning(judge):
    answer = judge(table(ROW, replace(ROW, key=(65,), constants=(("BLOCK", 64),))))
    assert answer.code == 0
    place = "tuned/nvidia-h200.json:9: warning: rows[1]: "
    assert f"{place}no candidate is {{ BLOCK = 64, num_warps = 4 }}" in answer.err


def test_a_table_is_noticed_when_it_changes(judge):
    assert judge(table(ROW)).code == 0
    assert judge("{").code == 3
    assert judge(table(ROW)).code == 0
