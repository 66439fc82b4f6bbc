"""What a project's flake offers: its derivations by variant, and why others are not there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbuild.errors import DamagedFileError
from kbuild.nix.failures import EvaluationError, evaluation_error
from kbuild.nix.options import NixOptions
from kbuild.nix.program import Nix
from kbuild.run import Done, Runner
from kbuild.untrusted import parse_json, reading

FILE = "flake.nix"
_KIND = "an answer of Nix"
_USES = re.compile(r"\bkbuild\b")
_HASTY = ("--option", "download-attempts", "2")
_QUESTION = """\
packages:
let
  names = builtins.fromJSON %s;
  offered = packages.redistributable or { };
  refused = offered.unsupported or { };
  told = derivation: { derivation = derivation.drvPath; output = derivation.outPath; };
  # What the commit changes is made from what was compiled.
  both = name: told offered.${name} // {
    compiled = (offered.${name}.compiled or offered.${name}).drvPath;
  };
  those = set: builtins.filter (name: set ? ${name}) names;
  of = set: valueOf: builtins.listToAttrs
    (map (name: { inherit name; value = valueOf name; }) (those set));
in
{
  offered = of offered both;
  refused = of refused (name: refused.${name});
}
"""


@dataclass(frozen=True)
class Derivation:
    """Something that Nix can make."""

    file: str
    """Its `.drv` file in the store."""
    output: str
    """The path that it makes, there or not."""
    compiled: str = ""
    """The `.drv` file of what it is made from, where making it is only the last touch."""


@dataclass(frozen=True)
class Offer:
    """What a flake says about some variants."""

    variants: Mapping[str, Derivation] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Variant -> why it cannot be made."""


def uses_kbuild(root: Path) -> bool:
    """True when the folder has a flake that names kbuild."""
    try:
        return _USES.search((root / FILE).read_text("utf-8", "replace")) is not None
    except OSError:
        return False


@dataclass(frozen=True)
class Flake:
    """A project's flake, as one Nix reads it."""

    root: Path
    nix: Nix
    options: NixOptions
    runner: Runner
    is_hasty: bool = False
    """Whether what cannot be downloaded at once counts as out of reach."""

    def offer(self, system: str, variants: Sequence[str]) -> Offer:
        """What it offers of some variants on a system.

        Derivations are written to the store; nothing is built.

        Raises:
            ConfigError: an error in a file of the project.
            EvaluationError: an error elsewhere, or an input that cannot be fetched.
        """
        wanted = _QUESTION % _quoted(json.dumps(list(variants)))
        done = self._evaluate(f".#packages.{system}", wanted)
        answer = _answer(done) if done.ok else None
        if answer is None:
            error = evaluation_error(done.output, self.root)
            if isinstance(error, EvaluationError) and error.is_absent:
                return Offer()
            raise error
        return answer

    def _evaluate(self, attribute: str, function: str) -> Done:
        hasty = _HASTY if self.is_hasty else ()
        command = self.nix.command("eval", "--json", attribute, "--apply", function)
        log = ("--log-format", "internal-json")
        arguments = (*command, *log, *hasty, *self.options.evaluation)
        return self.runner.run(arguments, cwd=self.root)


def _answer(done: Done) -> Offer | None:
    """What the JSON object among the lines says."""
    for line in reversed(done.output.splitlines()):
        # Programs that Nix starts write to the same stream without ending their lines.
        at = line.find('{"offered"')
        if at >= 0:
            try:
                return _offer(parse_json(line[at:], "nix eval", _KIND))
            except DamagedFileError:
                continue
    return None


def _offer(answer: Mapping[str, Any]) -> Offer:
    with reading("nix eval", _KIND):
        return Offer(
            {str(name): _derivation(told) for name, told in answer["offered"].items()},
            {str(name): str(reason) for name, reason in answer["refused"].items()},
        )


def _derivation(told: Mapping[str, str]) -> Derivation:
    compiled = told.get("compiled", "")
    return Derivation(str(told["derivation"]), str(told["output"]), str(compiled))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'
