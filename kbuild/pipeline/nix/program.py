"""The installed `nix`: its version.

Settings and sandbox, and whether it can be used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kbuild.system.errors import DamagedFileError, ToolchainError
from kbuild.system.processes import Runner
from kbuild.system.untrusted import parse_json, reading
from kbuild.system.version import Version
from kbuild.toolchains.facts import FactCache, Facts

SANDBOX_SETTINGS = ("sandbox", "sandbox-fallback", "build-users-group", "auto-allocate-uids")
SandboxState = Literal["on", "relaxed", "off", "unsure"]


@dataclass(frozen=True)
class NixSandbox:
    """The state of the sandbox, and what its strength rests on."""

    state: SandboxState
    """State of the sandbox: `relaxed` lets derivations out that ask for it; `unsure` if Nix may
    have built without one."""
    has_users: bool = True
    """True when builds run as users of their own; otherwise root builds, and could write to folders
    of the machine that the sandbox shows."""
    has_namespaces: bool = True
    """True if this user may create user namespaces."""
    group: str = ""
    """Group whose members builds run as; empty if they run as the user who starts them."""

    @property
    def warning(self) -> str:
        """A warning about the results; empty without one."""
        if self.state == "on":
            return ""
        return {
            "relaxed": "Nix's sandbox is relaxed: a derivation may ask to be built without it",
            "off": "Nix's sandbox is off: builds see this machine",
            "unsure": "Nix goes on without a sandbox where it cannot make one "
            "(`sandbox-fallback`), and user namespaces are missing here",
        }[self.state] + "; provenance says so"


def parse_sandbox(facts: Mapping[str, Any]) -> NixSandbox:
    """Read the facts of `kbuild.pipeline.nix.program`; a missing setting counts as off."""
    settings = facts["settings"]
    group = bool(settings.get("build-users-group")) and facts["users"] > 0
    has_users = group or bool(settings.get("auto-allocate-uids"))
    name = str(settings["build-users-group"]) if group else ""
    return NixSandbox(
        _sandbox_state(settings, facts["namespaces"]), has_users, facts["namespaces"], name
    )


def _sandbox_state(settings: Mapping[str, Any], has_namespaces: bool) -> SandboxState:
    value = settings.get("sandbox", False)
    if value == "relaxed":
        return "relaxed"
    if value not in {True, "true"}:
        return "off"
    falls_back = settings.get("sandbox-fallback", True) in {True, "true"}
    return "unsure" if falls_back and not has_namespaces else "on"


FEATURES = ("--extra-experimental-features", "nix-command flakes")
OLDEST = Version((2, 8))
_OUTPUTS_OF = Version((2, 13))
"""First release in which `x.drv^*` are a derivation's outputs and `x.drv` is the file."""
_STORE = re.compile(r"^Store U(?:RL|RI): (\S+)", re.MULTILINE)
_VERSION = re.compile(r"\(Nix\) (\d+(?:\.\d+)+)")
_PROFILE = "/nix/var/nix/profiles/default/bin"
"""Profile of installers; shells that are open already do not know it yet."""
INSTALL_HINT = "`install.sh --with-nix` installs it; without `--driver nix`, kbuild builds without"


@dataclass(frozen=True)
class Nix:
    """The installed Nix, which works on this machine."""

    program: str
    version: Version
    sandbox: NixSandbox
    is_own_store: bool = True
    """True if this process's Nix builds itself, without a daemon that has its own settings."""

    def command(self, *arguments: str) -> tuple[str, ...]:
        """A command line of the new interface, which need not be switched on."""
        return (self.program, *FEATURES, *arguments)

    def outputs_of(self, derivation: str) -> str:
        """The command line's name for the outputs of a `.drv` file."""
        return derivation if self.version < _OUTPUTS_OF else f"{derivation}^*"


def find_nix(cache: Path, runner: Runner, settings: Sequence[str] = ()) -> Nix:
    """The `nix` on PATH, asked once for each configuration.

    Raises:
        ToolchainError: it is not there, is too old, or cannot open its store.
    """
    program = nix_program()
    if program is None:
        raise ToolchainError("Nix is not installed", hint=INSTALL_HINT)
    facts = _facts(program, FactCache(cache), runner, settings)
    version = Version.parse(facts["version"])
    return Nix(program, version, parse_sandbox(facts), facts["is-own-store"])


def nix_program() -> str | None:
    """The program `nix`, if there is one."""
    return shutil.which("nix") or shutil.which("nix", path=_PROFILE)


def _facts(program: str, cache: FactCache, runner: Runner, settings: Sequence[str]) -> Facts:
    configuration = (os.environ.get("NIX_CONFIG", ""), os.environ.get("NIX_REMOTE", ""), *settings)
    files = _configuration_files(os.environ)
    question = json.dumps(["nix/2", program, configuration, files])

    def ask() -> tuple[Facts, tuple[str, ...]]:
        return _query_nix(program, runner, settings), (program, *files)

    return cache.get(question, ask)


def _query_nix(program: str, runner: Runner, settings: Sequence[str]) -> dict[str, Any]:
    match = _VERSION.search(runner.run((program, "--version")).output)
    if match is None:
        raise ToolchainError(f"`{program}` does not report its version", hint=INSTALL_HINT)
    if Version.parse(match[1]) < OLDEST:
        raise ToolchainError(f"Nix {match[1]} is too old: {OLDEST} is the oldest that does")
    shown = runner.run((program, *FEATURES, "show-config", "--json", *settings)).output
    ping = runner.run((program, *FEATURES, "store", "ping", *settings))
    if not ping.ok:
        raise ToolchainError(f"Nix {match[1]} cannot open its store: {_last_line(ping.output)}")
    values = _settings(shown)
    users = _group_members(str(values.get("build-users-group", "")))
    # Root builds as a member of the group that is named, and never as root.
    group = values.get("build-users-group")
    if group and not users and not values.get("auto-allocate-uids") and is_root():
        raise ToolchainError(
            f"Nix builds as the users of the group `{group}`, which has none",
            hint="`install.sh --with-nix` makes them; or set `build-users-group` to nothing",
        )
    namespaces = runner.run(("unshare", "--user", "true")).ok
    store = _STORE.search(ping.output)
    return {
        "version": match[1],
        "settings": values,
        "users": users,
        "namespaces": namespaces,
        "is-own-store": store is not None and store[1].startswith(("local", "/")),
    }


def is_root() -> bool:
    """True when this process may do everything."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _settings(text: str) -> dict[str, Any]:
    """The settings that matter, out of `show-config --json`; newer releases warn before it."""
    try:
        with reading("nix show-config", "an answer of Nix"):
            shown = parse_json(text[text.index("{") :], "nix show-config", "an answer of Nix")
            return {name: shown[name]["value"] for name in SANDBOX_SETTINGS if name in shown}
    except DamagedFileError:
        return {}


def _group_members(group: str) -> int:
    try:
        import grp
    except ImportError:  # Windows
        return 0
    try:
        return len(grp.getgrnam(group).gr_mem)
    except KeyError:
        return 0


def _configuration_files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files that a configuration is read from, there or not, and who builds."""
    system = Path(environ.get("NIX_CONF_DIR") or "/etc/nix")
    home = Path(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))  # noqa: PTH111 - never fails
    search_path = environ.get("NIX_USER_CONF_FILES", "")
    own = [part for part in search_path.split(":") if part] or [str(home / "nix" / "nix.conf")]
    files = (system / "nix.conf", system / "nix.custom.conf", Path("/etc/group"))
    return (*map(str, files), *own)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ") if lines else "it prints nothing"


def settings_in(arguments: Sequence[str]) -> tuple[str, ...]:
    """The `--option NAME VALUE` among arguments: those that every command of Nix takes."""
    starts = [n for n, argument in enumerate(arguments) if argument == "--option"]
    return tuple(part for n in starts for part in arguments[n : n + 3])
