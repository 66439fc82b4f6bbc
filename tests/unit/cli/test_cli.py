"""The table of commands, and what shells complete of it."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess

import pytest

from kbuild.cli import COMMANDS, overview
from kbuild.cli.completions import SHELLS, completion_script
from kbuild.cli.generate_docs import describe_command

NAMES = [command.name for command in COMMANDS]
# These print a script, a page, or nothing at all.
WITHOUT_JSON = {"completions", "generate-docs", "devshell", "cluster", "dev"}


@pytest.fixture(params=COMMANDS, ids=NAMES)
def description(request):
    return describe_command(request.param)


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES)


def test_every_module_has_both_functions(description):
    module = importlib.import_module(description.command.module)
    assert description.command.name in module.__doc__
    assert callable(getattr(module, description.command.configure))
    assert callable(getattr(module, description.command.execute))


def test_every_argument_has_help(description):
    assert [a.name for a in description.arguments if not a.help] == []


def test_every_verb_that_answers_speaks_json(description):
    flags = {flag for option in description.options for flag in option.flags}
    assert ("--json" in flags) == (description.command.name not in WITHOUT_JSON)
    assert {"--help", "--quiet", "--verbose", "--color"} <= flags


def test_overview_fits_a_terminal():
    assert max(map(len, overview().splitlines())) <= 80


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_know_commands_and_options(shell):
    script = completion_script(shell)
    for command in COMMANDS:
        assert command.name in script
        for option in describe_command(command).options:
            long = next(flag for flag in option.flags if flag.startswith("--"))
            assert long.removeprefix("--") in script


@pytest.fixture
def complete(kbuild):
    """What bash offers for a command line whose last word is being typed."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    script = kbuild("completions", "bash").out

    def offers(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_kbuild"
        program = f'{script}\n{ask}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(  # noqa: TID251
            ["bash", "-euc", program], capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return offers


def test_verbs(complete):
    assert complete("kbuild", "check-") == ["check-config"]


@pytest.mark.parametrize("command", ["build", "abi-advice"])
def test_backends(complete, command):
    assert complete("kbuild", command, "--backend", "c") == ["cann", "cpu", "cuda"]


@pytest.mark.parametrize("command", ["build", "check", "wheel"])
def test_variants_are_those_of_the_project(complete, command, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "kbuild"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\ntest "$*" = "list-variants -qq" && printf "torch-%s\\n" cpu cuda\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert complete("kbuild", command, "--variant", "torch-cu") == ["torch-cuda"]
