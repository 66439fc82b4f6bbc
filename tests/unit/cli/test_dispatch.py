from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbuild import __version__
from kbuild.cli import ALIASES, COMMANDS, UNLISTED, build_toml, doctor

HEAVY = {"torch", "jinja2", "huggingface_hub", "rich", "importlib.metadata"}


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(kbuild, flag):
    assert kbuild(flag) == type(kbuild(flag))(0, f"kbuild {__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_overview_names_every_verb(kbuild, flag):
    answer = kbuild(flag)
    assert answer.code == 0
    assert answer.err == ""
    for command in COMMANDS:
        assert (f"\n  {command.name} " in answer.out) == (command.group != UNLISTED)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["bild"], "hint: did you mean `build`?"),
        (["zzzzz"], "hint: `kbuild --help` lists the commands"),
        (["--color", "build"], "write the command first"),
        (["schema", "--jsno"], "did you mean `--json`?"),
        (["schema", "--zzzzzzz"], "lists the arguments"),
        (["schema", "--", "x"], "takes nothing after `--`"),
        (["completions", "tcsh"], "invalid choice"),
        (["init", "x", "--language", "cutee"], "did you mean `cute`?"),
        (["init", "x", "--language", "cuda"], "lists the arguments"),
        (["check-config", "nowhere"], "`nowhere` does not exist"),
        (["explain"], "hint: `kbuild plan --variant NAME`"),
        (["Migrate"], "hint: `kbuild check-config --update`"),
        (["explan"], "hint: `kbuild plan --variant NAME`"),
        (["check-config", "--dry-run"], "--dry-run needs --update"),
        (["create-pyproject", "--dry-run"], "--dry-run needs --clean"),
        (["sign", "--check"], "--check needs --hash"),
        (["check", "--builds", "--abi"], "not allowed with argument"),
    ],
)
def test_bad_command_lines(kbuild, argv, words):
    answer = kbuild(*argv)
    assert answer.code == 2
    assert words in answer.err
    assert answer.out == ""


def test_json_errors_are_objects_on_stdout(kbuild):
    answer = kbuild("check-builds", "--json")
    assert answer.code == 2
    assert answer.json["error"]["kind"] == "usage"
    assert "no built variants" in answer.json["error"]["message"]
    assert "no built variants" in answer.err


def test_a_bug_leaves_a_report(kbuild, monkeypatch):
    def fail(args, ctx):
        raise RuntimeError("surprise")

    monkeypatch.setattr(build_toml, "execute", fail)
    answer = kbuild("schema")
    assert answer.code == 70
    assert "this is a bug in kbuild: RuntimeError: surprise" in answer.err
    assert "Traceback" not in answer.err
    report = Path(answer.err.strip().rsplit(" ", 1)[1])
    assert "in fail" in report.read_text()
    assert "kbuild check-config --schema" in report.read_text()


def test_interruption(kbuild, monkeypatch):
    def interrupt(args, ctx):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "execute", interrupt)
    answer = kbuild("doctor")
    assert (answer.code, answer.out, answer.err) == (130, "", "interrupted\n")


@pytest.mark.parametrize("argv", [["schema"], ["--help"]])
def test_closed_pipe_is_quiet(here, argv):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-m", "kbuild", *argv],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


def imported(here: Path, *argv: str) -> set[str]:
    done = subprocess.run(  # noqa: TID251
        [sys.executable, "-X", "importtime", *argv],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.rsplit("|", 1)[1].strip() for line in lines}


@pytest.mark.parametrize("argv", [["--help"], ["--version"]])
def test_help_imports_next_to_nothing(here, argv):
    names = imported(here, "-m", "kbuild", *argv) - imported(here, "-c", "import runpy, importlib")
    own = {"kbuild", "kbuild.cli", "kbuild.system", "kbuild.system.plugins", "__future__"}
    assert {name for name in names - own if not name.startswith("kbuild.plugins")} == set()


def test_cached_check_config_imports_no_models(here, demo):
    imported(here, "-m", "kbuild", "check-config", "demo")
    names = imported(here, "-m", "kbuild", "check-config", "demo")
    assert "kbuild.system.record" in names
    assert not names & (HEAVY | {"pydantic", "tomli", "tomlkit", "kbuild.plan.project"})


def test_another_name_of_a_command(kbuild):
    assert kbuild("compile", "--help").out.startswith("usage: kbuild build ")
    assert not ALIASES.keys() & {command.name for command in COMMANDS}
    listed = kbuild("--help").out
    assert [name for name in ALIASES if f"\n  {name} " in listed] == []


@pytest.mark.parametrize(
    "argv",
    [
        ("check-builds", "demo", "--list"),
        ("check-abi", "demo", "--list"),
        ("hash", "demo", "--check"),
        ("update-build", "demo", "--dry-run", "--json"),
        ("clean-pyproject", "demo", "--dry-run", "--ops-id", "x", "--json"),
        ("schema",),
    ],
)
def test_a_name_of_the_reference_is_a_command_with_an_option(kbuild, variant, argv):
    name, *rest = argv
    old, new = kbuild(*argv), kbuild(*ALIASES[name], *rest)
    assert (old.code, old.out) == (new.code, new.out)
    assert old.out


KERNEL_BUILDERS = (
    *("completions", "init", "build", "build-and-copy", "build-and-upload", "upload"),
    *("check-config", "check-abi", "check-builds", "create-pyproject", "clean-pyproject"),
    *("devshell", "testshell", "list-variants", "hash", "update-build", "skills"),
    *("fill-card", "generate-docs"),
)


@pytest.mark.parametrize("name", [*KERNEL_BUILDERS, *ALIASES])
def test_every_name_of_the_reference_has_help(kbuild, name):
    command, *options = ALIASES.get(name, (name,))
    answer = kbuild(name, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"usage: kbuild {command} ")
    assert all(option in answer.out for option in options)
