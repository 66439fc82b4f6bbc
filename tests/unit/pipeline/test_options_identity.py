"""The options that say which state of the source is built."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest

from kbuild.pipeline.option_values import identity_of
from kbuild.pipeline.options import BuildOptions
from kbuild.plan.command_options import add_options
from kbuild.plan.variant import Identity
from kbuild.system.errors import UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def identity(*arguments: str) -> Identity | None:
    parser = ArgumentParser()
    add_options(parser, BuildOptions, "identity")
    return identity_of(parser.parse_args(arguments))


def test_without_options_git_is_asked():
    assert identity() is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--unique-id", "rc1"], Identity("rc1")),
        (["--kernel-sha", COMMIT.upper()], Identity("0123456", COMMIT)),
        (["--kernel-sha", COMMIT, "--kernel-dirty"], Identity("0123456_dirty", COMMIT, dirty=True)),
        (["--kernel-sha", COMMIT, "--unique-id", "x"], Identity("x", COMMIT)),
    ],
)
def test_what_is_given_is_taken(arguments, expected):
    assert identity(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kernel-dirty"], "needs --kernel-sha"),
        (["--kernel-sha", "abc"], "`abc` is not a commit"),
        (["--unique-id", "a-b"], "cannot end an identifier"),
        (["--unique-id", ""], "cannot end an identifier"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        identity(*arguments)
