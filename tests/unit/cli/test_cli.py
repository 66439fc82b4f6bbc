from __future__ import annotations

import importlib

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
