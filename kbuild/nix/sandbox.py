"""What separates a build from the machine: the sandbox as this Nix is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SETTINGS = ("sandbox", "sandbox-fallback", "build-users-group", "auto-allocate-uids")
State = Literal["on", "relaxed", "off", "unsure"]


@dataclass(frozen=True)
class Sandbox:
    """The state of the sandbox, and what its strength rests on."""

    state: State
    """`relaxed` lets derivations out that ask for it; `unsure` when Nix may have gone without."""
    has_users: bool = True
    """Whether builds run as users of their own; without, root builds, and could write to folders
    of the machine that the sandbox shows."""
    has_namespaces: bool = True
    """Whether this user may make user namespaces."""
    group: str = ""
    """Builds run as its members; empty when they run as whoever starts them."""

    @property
    def warning(self) -> str:
        """What a user should know before trusting a result; empty when there is nothing."""
        if self.state == "on":
            return ""
        return {
            "relaxed": "Nix's sandbox is relaxed: a derivation may ask to be built without it",
            "off": "Nix's sandbox is off: builds see this machine",
            "unsure": "Nix goes on without a sandbox where it cannot make one "
            "(`sandbox-fallback`), and user namespaces are missing here",
        }[self.state] + "; provenance says so"


def sandbox_of(facts: Mapping[str, Any]) -> Sandbox:
    """From the facts of `kbuild.nix.program`; a setting that is not told counts as off."""
    settings = facts["settings"]
    group = bool(settings.get("build-users-group")) and facts["users"] > 0
    has_users = group or bool(settings.get("auto-allocate-uids"))
    name = str(settings["build-users-group"]) if group else ""
    return Sandbox(_state(settings, facts["namespaces"]), has_users, facts["namespaces"], name)


def _state(settings: Mapping[str, Any], has_namespaces: bool) -> State:
    value = settings.get("sandbox", False)
    if value == "relaxed":
        return "relaxed"
    if value not in {True, "true"}:
        return "off"
    falls_back = settings.get("sandbox-fallback", True) in {True, "true"}
    return "unsure" if falls_back and not has_namespaces else "on"
