"""`kbuild check`, and checks that an author overrules by an option or by `kbuild.toml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.checks.allow import COMMAND_LINE_REASON
from kbuild.plan.metadata import read_metadata
from tests.support.interpreters import Interpreter, make_interpreter

WRONG = 'import torch\ntorch.library.define("demo::f", "() -> ()")\n'
REASON = "the op is another kernel's, and wanted"


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpreter:
    """The one that kbuild chooses, with a cache in which nothing is."""
    monkeypatch.setenv("KBUILD_CACHE_DIR", str(tmp_path / "cache"))
    made = make_interpreter(tmp_path / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(made.root))
    return made


@pytest.fixture
def wrong(demo: Path, interpreter: Interpreter) -> Path:
    """A project in which the check `ops` finds an error."""
    (demo / "torch-ext" / "demo" / "named.py").write_text(WRONG)
    (demo / "CARD.md").write_text("---\nlibrary_name: kernels\n---\n# Demo\n")
    text = (demo / "build.toml").read_text()
    (demo / "build.toml").write_text(text + '\n[general.hub]\nrepo-id = "a/demo"\n')
    return demo


def allow(project: Path, reason: str = REASON) -> None:
    (project / "kbuild.toml").write_text(f'[allow]\nops = "{reason}"\n')


def told_in(project: Path) -> dict[str, str]:
    return dict(read_metadata(project / "build" / "torch-cuda").overruled)


def test_an_option_overrules_for_one_build(kbuild, wrong):
    answer = kbuild("build", "demo", "--allow", "ops", "--json")
    assert answer.code == 0, answer.err
    (built,) = answer.json["variants"]
    (finding,) = [found for found in built["findings"] if found["check"] == "ops"]
    assert (finding["severity"], finding["overruled"]) == ("warning", COMMAND_LINE_REASON)
    assert built["overruled"] == told_in(wrong) == {"ops": COMMAND_LINE_REASON}
    assert "> - `ops` in `torch-cuda`: " in (wrong / "build" / "CARD.md").read_text()
    again = kbuild("build", "demo", "--allow", "ops")
    assert "up-to-date" in again.err
    assert "torch-cuda: the errors of `ops` are overruled" in again.err
    assert kbuild("build", "demo").code == 6


def test_a_project_overrules_with_a_reason(kbuild, wrong):
    allow(wrong)
    answer = kbuild("build", "demo")
    assert answer.code == 0, answer.err
    assert f"[ops, overruled: {REASON}]" in answer.err
    assert told_in(wrong) == {"ops": REASON}
    assert "up-to-date" in kbuild("build", "demo").err
    allow(wrong, "another")
    assert "up-to-date" not in kbuild("build", "demo").err
    assert told_in(wrong) == {"ops": "another"}
    (wrong / "kbuild.toml").unlink()
    assert kbuild("build", "demo").code == 6


def test_what_finds_nothing_is_not_overruled(kbuild, wrong):
    allow(wrong)
    (wrong / "torch-ext" / "demo" / "named.py").write_text("")
    assert kbuild("build", "demo", "--allow", "imports").code == 0
    assert told_in(wrong) == {}
    (wrong / "kbuild.toml").unlink()
    assert "up-to-date" in kbuild("build", "demo").err


def test_check_takes_the_project_s_word_and_no_variant_s(kbuild, wrong):
    allow(wrong)
    assert kbuild("build", "demo").code == 0
    answer = kbuild("check", "demo", "--no-load", "--json")
    assert answer.code == 0, answer.err
    found = answer.json["targets"][0]["outputs"][0]["findings"]
    assert [(each["severity"], each["overruled"]) for each in found] == [("warning", REASON)]
    for command in ("check", "check-builds"):
        alone = kbuild(command, "demo/build/torch-cuda", "--no-load")
        assert alone.code == 6
        assert f"the author overruled it ({REASON}); `--allow ops` does too" in alone.out
        assert kbuild(command, "demo/build/torch-cuda", "--no-load", "--allow", "ops").code == 0
    (wrong / "kbuild.toml").unlink()
    assert kbuild("check", "demo", "--no-load").code == 6
    assert kbuild("check", "demo", "--no-load", "--strict", "--allow", "ops").code == 0


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("build", "opps", "there is no check `opps`\n  hint: did you mean `ops`?"),
        ("check", "opps", "there is no check `opps`\n  hint: did you mean `ops`?"),
        ("build", "metadata", "`metadata` cannot be overruled: it protects the users"),
        ("check-builds", "layout", "`layout` cannot be overruled"),
        ("check-abi", "binary", "`binary` cannot be overruled"),
        ("build-and-copy", "../ops", "there is no check `../ops`"),
        ("build", "signature", "there is no check `signature`"),
    ],
)
def test_names_that_are_refused(kbuild, wrong, variant, command, name, words):
    answer = kbuild(command, "demo", "--allow", name)
    assert answer.code == 2
    assert f"--allow: {words}" in answer.err


FILES = {
    "ops = 1": "demo/kbuild.toml:1: ops: is not a table of this file\n  hint: allowed: `[allow]`",
    "[alow]\nops = 'x'": "demo/kbuild.toml:1: alow: is not a table of this file\n  hint: did you",
    "allow = 'ops'": "demo/kbuild.toml:1: allow: is a string, not a table\n  hint: write `[allow]`",
    "[allow]\nopps = 'x'": "demo/kbuild.toml:2: allow.opps: there is no check `opps`\n  hint: did",
    "[allow]\nmetadata = 'x'": "demo/kbuild.toml:2: allow.metadata: `metadata` cannot be overruled",
    "[allow]\nops = true": "demo/kbuild.toml:2: allow.ops: is a boolean, not a reason\n  hint:",
    "[allow]\nops = ' '": "demo/kbuild.toml:2: allow.ops: has no reason\n  hint: say in one line",
    "[allow]\nops = 'a'\n\nops = 'b'": "demo/kbuild.toml:4: not valid TOML: ",
    '[allow]\nops = "a\\nb"': "demo/kbuild.toml:2: allow.ops: has a reason of several lines",
}


def refused(kbuild, command: str) -> str:
    """What a command says of a wrong file, without the excerpt of it."""
    answer = kbuild(command, "demo")
    assert answer.code == 3, answer.err
    return "\n".join(line for line in answer.err.splitlines() if not line.startswith("    "))


@pytest.mark.parametrize("text", FILES)
def test_what_is_wrong_with_the_file(kbuild, wrong, text):
    (wrong / "kbuild.toml").write_text(text)
    assert FILES[text] in refused(kbuild, "check-config")


@pytest.mark.parametrize("command", ["build", "check"])
def test_a_wrong_file_ends_other_commands_too(kbuild, wrong, command):
    (wrong / "kbuild.toml").write_text("ops = 1")
    assert FILES["ops = 1"] in refused(kbuild, command)


def test_check_config_forgets_what_it_said_before_the_file_was_there(kbuild, wrong):
    assert kbuild("check-config", "demo").code == 0
    (wrong / "kbuild.toml").write_text("[allow]\nopps = 'x'\n")
    assert kbuild("check-config", "demo").code == 3
    (wrong / "kbuild.toml").write_text("")
    assert kbuild("check-config", "demo").code == 0
    (wrong / "kbuild.toml").unlink()
    (wrong / "kbuild.toml").mkdir()
    assert "`kbuild.toml` is a folder" in kbuild("check-config", "demo").err


BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["cpu.cpp"]

[kernel.metal]
backend = "metal"
depends = ["torch"]
src = ["demo.metal"]
"""


@pytest.fixture
def project(here):
    """A project with one shader."""
    for path, text in {
        "build.toml": BUILD,
        "torch-ext/demo/__init__.py": "__all__ = ['one']\none = 1\n",
        "torch-ext/binding.cpp": "",
        "cpu.cpp": "",
        "demo.metal": "#include <metal_stdlib>\n",
    }.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)
    return here


def test_sound_sources(kbuild, project):
    answer = kbuild("check")
    assert (answer.code, answer.out) == (0, "")
    assert "no built variants were there to check" in answer.err


def test_findings_are_an_exit_code(kbuild, project):
    wrong = 'import torch\ntorch.library.define("demo::one", "() -> ()")\n'
    (project / "torch-ext/demo/__init__.py").write_text(wrong)
    answer = kbuild("check")
    assert answer.code == 6
    assert answer.err.endswith("error: the sources of demo have errors\n")
    answer = kbuild("check", "--json")
    assert (answer.code, answer.json["schema"]) == (6, 2)
    sources = answer.json["targets"][0]["sources"]
    assert (sources["project"], sources["ok"]) == ("demo", False)
    assert sources["findings"][0]["where"] == "torch-ext/demo/__init__.py:2"


def test_python_only_projects_have_nothing(kbuild, demo):
    answer = kbuild("check", str(demo), "--json")
    (target,) = answer.json["targets"]
    assert (answer.code, target["sources"]["findings"], target["outputs"]) == (0, [], [])
    assert "no built variants" in kbuild("check", str(demo)).err
