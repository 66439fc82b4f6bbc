"""How a command line names versions of kernels: on the Hub, in a mirror, or built here.

| text | meaning |
|---|---|
| `hub:org/relu`, `hub:org/relu@v1`, `hub:org/relu@<commit>` | on the Hub |
| `s3://bucket/kernels`, `s3://bucket/kernels/org/relu@v1` | in a mirror |
| `DIR`, `DIR/org/relu`, `DIR/org/relu@v1`, for a mirror in a folder | in that mirror |
| any other folder | the variants that were built there |
| `org/relu@v1`, where there is no such folder | on the Hub |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbuild.cli.built import discover
from kbuild.cli.context import Context
from kbuild.errors import UsageError

if TYPE_CHECKING:
    from kbuild.hub.patience import Patience
    from kbuild.versions.model import Source, Version

HUB = "hub:"
HELP = (
    "OWNER/NAME or hub:OWNER/NAME on the Hub, a mirror's folder or address with or without "
    "/OWNER/NAME, or a project or folder with built variants"
)
_ON_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", flags=re.ASCII)
_LAST_TWO = re.compile(r"(?:(.*)/)?([\w-][\w.-]*)/([\w-][\w.-]*)", flags=re.ASCII)


@dataclass(frozen=True)
class Location:
    """Where a text leads."""

    text: str
    """As given, without credentials."""
    sources: tuple[Source, ...]
    """One kernel, or all of a mirror."""
    name: str | None
    """The version that was named."""

    def one(self) -> tuple[Version, str]:
        """The version that was named, else the newest; and how a person would name it.

        Raises:
            UsageError: the text names several kernels, or none with versions.
            HubError: nobody answers.
        """
        if len(self.sources) != 1:
            known = ", ".join(source.title for source in self.sources)
            raise UsageError(f"`{self.text}` is a mirror of several kernels", hint=f"name {known}")
        (source,) = self.sources
        name = self.name or next(iter(source.names()[::-1]), None)
        if name is None:
            raise UsageError(f"{source.title} has no versions", hint="name a commit with @")
        return source.version(name), f"{source.title}@{name}"


def locate(text: str, ctx: Context, globs: Sequence[str] = ()) -> Location:
    """Where a text leads.

    Raises:
        UsageError: nowhere.
        HubError: nobody answers.
    """
    from kbuild.mirror.address import is_url, without_credentials

    if text.startswith(HUB):
        return _on_hub(text, ctx)
    bare, name = _split(text)
    if not is_url(text):
        return _in_folder(bare, name, ctx, globs) or _named(text, ctx)
    shown = without_credentials(bare)
    if found := _in_mirror(bare, name, ctx):
        return Location(shown, found, name)
    raise UsageError(f"{shown} is no mirror of kernels", hint="`kbuild publish` makes one")


def _in_folder(bare: str, name: str | None, ctx: Context, globs: Sequence[str]) -> Location | None:
    path = ctx.path(Path(bare))
    if found := _in_mirror(bare, name, ctx):
        return Location(bare, found, name)
    if not path.is_dir():
        return None
    from kbuild.project import BUILD_FILE
    from kbuild.versions.sources import Built

    project = next((f for f in (path, path.parent) if (f / BUILD_FILE).is_file()), None)
    return Location(bare, (Built(discover(path, globs), project, bare),), name)


def _in_mirror(bare: str, name: str | None, ctx: Context) -> tuple[Source, ...]:
    """The kernels of the mirror at an address, or the one that its last two parts name."""
    from kbuild.hub.values import Repo
    from kbuild.mirror.address import parse_address
    from kbuild.mirror.opened import open_store
    from kbuild.mirror.read import kernels_in
    from kbuild.versions.sources import InMirror

    patience = patience_of(ctx)
    root, owner, kernel = _parts(bare)
    named: tuple[InMirror, ...] = ()
    if kernel:
        store = open_store(parse_address(root, ctx.cwd))
        named = (InMirror(store, Repo(f"{owner}/{kernel}"), patience),)
        if name and named[0].has(name):  # first of all: it needs no list
            return named
    store = open_store(parse_address(bare, ctx.cwd))
    kernels = patience.persist(lambda: kernels_in(store))
    if kernels:
        return tuple(InMirror(store, repo, patience) for repo in kernels)
    return named if named and not name and named[0].names() else ()


def patience_of(ctx: Context) -> Patience:
    """How patient one is with a mirror."""
    from kbuild.hub.patience import Patience
    from kbuild.mirror.job import PATIENT_TRIES

    return Patience(tries=PATIENT_TRIES, say=ctx.ui.say)


def _parts(bare: str) -> tuple[str, str, str]:
    """`s3://bucket/kernels/org/relu` as root, owner and kernel; empty where there are too few."""
    match = _LAST_TWO.fullmatch(bare.rstrip("/"))
    return (_root(match[1]), match[2], match[3]) if match else ("", "", "")


def _root(found: str | None) -> str:
    return "." if found is None else found or "/"


def _split(text: str) -> tuple[str, str | None]:
    """An address and the version behind its last `@`; one before a slash belongs to a password."""
    bare, _, name = text.rpartition("@")
    scheme, _, rest = bare.rpartition("://")
    if not bare or not name or "/" in name or (scheme and "/" not in rest):
        return text, None
    return bare, name


def _on_hub(text: str, ctx: Context) -> Location:
    from kbuild.cli.uploading import open_desk
    from kbuild.versions.sources import OnHub

    repo, _, name = text.removeprefix(HUB).partition("@")
    if not _ON_HUB.fullmatch(repo):
        hint = "write hub:OWNER/KERNEL or hub:OWNER/KERNEL@REVISION"
        raise UsageError(f"`{text}` is no kernel on the Hub", hint=hint)
    desk = open_desk(ctx)
    return Location(text, (OnHub(desk.hub, repo, desk.patience),), name or None)


def _named(text: str, ctx: Context) -> Location:
    if _ON_HUB.fullmatch(text.partition("@")[0]):
        return _on_hub(f"{HUB}{text}", ctx)
    raise UsageError(f"`{text}` does not exist", hint=f"name {HELP}")
