"""The `nix` that is installed: its version, its settings, and whether it can be used."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.errors import DamagedFileError, ToolchainError
from kbuild.nix.sandbox import SETTINGS, Sandbox, sandbox_of
from kbuild.run import Runner
from kbuild.toolchains.facts import FactCache, Facts
from kbuild.untrusted import parse_json, reading
from kbuild.version import Version

FEATURES = ("--extra-experimental-features", "nix-command flakes")
OLDEST = Version((2, 8))
_OUTPUTS_OF = Version((2, 13))
"""From here on, `x.drv^*` are a derivation's outputs and `x.drv` is the file."""
_STORE = re.compile(r"^Store U(?:RL|RI): (\S+)", re.MULTILINE)
_VERSION = re.compile(r"\(Nix\) (\d+(?:\.\d+)+)")
_PROFILE = "/nix/var/nix/profiles/default/bin"
"""Where installers put it; shells that are open already do not know that yet."""
INSTALL = "`install.sh --with-nix` installs it; `--driver local` builds without"


@dataclass(frozen=True)
class Nix:
    """A Nix that works here."""

    program: str
    version: Version
    sandbox: Sandbox
    is_own_store: bool = True
    """Whether this process's Nix builds by itself, and no daemon with settings of its own."""

    def command(self, *words: str) -> tuple[str, ...]:
        """A command line of the new interface, which need not be switched on."""
        return (self.program, *FEATURES, *words)

    def outputs_of(self, derivation: str) -> str:
        """How the command line names the outputs of a `.drv` file."""
        return derivation if self.version < _OUTPUTS_OF else f"{derivation}^*"


def find_nix(cache: Path, runner: Runner, settings: Sequence[str] = ()) -> Nix:
    """The `nix` on PATH, asked once for each configuration.

    Args:
        cache: kbuild's cache folder.
        runner: asks it.
        settings: what the command line says about settings, `--option NAME VALUE`.

    Raises:
        ToolchainError: it is not there, is too old, or cannot open its store.
    """
    program = nix_program()
    if program is None:
        raise ToolchainError("Nix is not installed", hint=INSTALL)
    facts = _facts(program, FactCache(cache), runner, settings)
    version = Version.parse(facts["version"])
    return Nix(program, version, sandbox_of(facts), facts["is-own-store"])


def nix_program() -> str | None:
    """Where `nix` is, if it is there."""
    return shutil.which("nix") or shutil.which("nix", path=_PROFILE)


def _facts(program: str, cache: FactCache, runner: Runner, settings: Sequence[str]) -> Facts:
    given = (os.environ.get("NIX_CONFIG", ""), os.environ.get("NIX_REMOTE", ""), *settings)
    files = _configuration(os.environ)
    question = json.dumps(["nix/2", program, given, files])

    def ask() -> tuple[Facts, tuple[str, ...]]:
        return _asked(program, runner, settings), (str(Path(program).resolve()), *files)

    return cache.get(question, ask)


def _asked(program: str, runner: Runner, settings: Sequence[str]) -> dict[str, Any]:
    found = _VERSION.search(runner.run((program, "--version")).output)
    if found is None:
        raise ToolchainError(f"`{program}` does not say which Nix it is", hint=INSTALL)
    if Version.parse(found[1]) < OLDEST:
        raise ToolchainError(f"Nix {found[1]} is too old: {OLDEST} is the oldest that does")
    shown = runner.run((program, *FEATURES, "show-config", "--json", *settings)).output
    ping = runner.run((program, *FEATURES, "store", "ping", *settings))
    if not ping.ok:
        raise ToolchainError(f"Nix {found[1]} cannot open its store: {_last_line(ping.output)}")
    values = _settings(shown)
    users = _members(str(values.get("build-users-group", "")))
    _refuse_without_users(values, users)
    namespaces = runner.run(("unshare", "--user", "true")).ok
    store = _STORE.search(ping.output)
    return {
        "version": found[1],
        "settings": values,
        "users": users,
        "namespaces": namespaces,
        "is-own-store": store is not None and store[1].startswith(("local", "/")),
    }


def _refuse_without_users(settings: Mapping[str, Any], users: int) -> None:
    """Root builds as a member of the group that is named, and never as root."""
    group = settings.get("build-users-group")
    if group and not users and not settings.get("auto-allocate-uids") and is_root():
        raise ToolchainError(
            f"Nix is to build as the users of the group `{group}`, which has none",
            hint="`install.sh --with-nix` makes them; or set `build-users-group` to nothing",
        )


def is_root() -> bool:
    """True when this process may do everything."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _settings(text: str) -> dict[str, Any]:
    """Those that matter, out of `show-config --json`, before which newer ones warn."""
    try:
        with reading("nix show-config", "an answer of Nix"):
            shown = parse_json(text[text.index("{") :], "nix show-config", "an answer of Nix")
            return {name: shown[name]["value"] for name in SETTINGS if name in shown}
    except DamagedFileError:
        return {}


def _members(group: str) -> int:
    try:
        import grp
    except ImportError:  # Windows
        return 0
    try:
        return len(grp.getgrnam(group).gr_mem)
    except KeyError:
        return 0


def _configuration(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files that a configuration is read from, there or not, and who builds."""
    system = Path(environ.get("NIX_CONF_DIR") or "/etc/nix")
    home = Path(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))  # noqa: PTH111 - never fails
    given = environ.get("NIX_USER_CONF_FILES", "")
    own = [part for part in given.split(":") if part] or [str(home / "nix" / "nix.conf")]
    files = (system / "nix.conf", system / "nix.custom.conf", Path("/etc/group"))
    return (*map(str, files), *own)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it says nothing"
