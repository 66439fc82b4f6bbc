"""What is handed on to Nix."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from kbuild.errors import UsageError

VARIABLE = "KBUILD_NIX_ARGS"


@dataclass(frozen=True)
class NixOptions:
    """Options of Nix itself; empty ones leave the choice to its configuration."""

    max_jobs: str = ""
    """Derivations that are built at once: a number or `auto`; 0 leaves all to other machines."""
    cores: int | None = None
    """Processors of one derivation; 0 are all."""
    builders: str = ""
    """Other machines, as `nix.conf` writes them."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Flake inputs taken from elsewhere: (input, flake)."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of Nix: (name, value)."""
    print_logs: bool = False
    """Whether everything that builders say is shown."""
    rebuild: bool = False
    """Whether derivations are built a second time and compared."""

    @property
    def evaluation(self) -> tuple[str, ...]:
        """Arguments of everything that reads the flake."""
        inputs = (part for pair in self.overrides for part in ("--override-input", *pair))
        return (*inputs, *self.configuration)

    @property
    def configuration(self) -> tuple[str, ...]:
        """Arguments that every command of Nix takes."""
        return tuple(part for pair in self.settings for part in ("--option", *pair))

    @property
    def realisation(self) -> tuple[str, ...]:
        """Arguments of a build."""
        given = [("--max-jobs", self.max_jobs), ("--builders", self.builders)]
        given.append(("--cores", "" if self.cores is None else str(self.cores)))
        return (*(part for pair in given if pair[1] for part in pair), *self.configuration)


def with_environment(options: NixOptions, environ: Mapping[str, str]) -> NixOptions:
    """The options after those of `KBUILD_NIX_ARGS`, which say the same things for every command.

    Raises:
        UsageError: the variable holds something else than inputs and settings.
    """
    words = iter(_words(environ.get("KBUILD_NIX_ARGS", "")))
    overrides: list[tuple[str, str]] = []
    settings: list[tuple[str, str]] = []
    kinds = {"--override-input": overrides, "--option": settings}
    for word in words:
        pair = (next(words, ""), next(words, ""))
        if word not in kinds or not all(pair):
            raise UsageError(
                f"{VARIABLE} has `{word}`",
                hint="it takes `--override-input INPUT FLAKE` and `--option NAME VALUE`",
            )
        kinds[word].append(pair)
    return NixOptions(
        options.max_jobs,
        options.cores,
        options.builders,
        (*overrides, *options.overrides),
        (*settings, *options.settings),
        options.print_logs,
        options.rebuild,
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{VARIABLE} is not written as a shell would: {error}") from None
