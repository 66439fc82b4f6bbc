"""Nix: whether it can be used, and how far its sandbox separates builds from this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbuild.diagnosis.item import Item
from kbuild.errors import ToolchainError
from kbuild.nix.program import Nix, find_nix, nix_program
from kbuild.run import Runner

_NIX, _SANDBOX = "Nix", "Nix sandbox"
_PURPOSE = "builds in a sandbox: --driver nix"
_INSTALL = "install.sh --with-nix"
_STRICT = "results that depend on nothing else"


def nix_items(cache: Path, runner: Runner) -> Iterator[Item]:
    """The program; where it can be used, its sandbox as well."""
    try:
        nix = find_nix(cache, runner)
    except ToolchainError as error:
        found = nix_program()
        words = f"{found}: {error.message}" if found else ""
        yield Item(_NIX, "optional", words, _PURPOSE, _INSTALL)
        return
    yield Item(_NIX, "ok", f"{nix.version} {nix.program}", _PURPOSE)
    yield _sandbox(nix)


def _sandbox(nix: Nix) -> Item:
    state = nix.sandbox
    spaces = "user namespaces" if state.has_namespaces else "no user namespaces"
    users = "users to build as" if state.has_users else "no users to build as"
    found = f"{state.state}, {spaces}, {users}"
    if state.state != "on":
        mend = "in nix.conf: sandbox = true, sandbox-fallback = false"
        return Item(_SANDBOX, "optional", found, _STRICT, mend)
    return Item(_SANDBOX, "ok", found, _STRICT)
