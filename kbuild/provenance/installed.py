"""What a toolchain takes from kbuild's store: the wheels, packages and checkouts behind entries.

A toolchain is a set of paths for CMake. Those below the store say which entries are used, and an
entry remembers what it was made from; nothing is looked up in a lock that may have moved on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from kbuild.provenance.ingredient import Ingredient
from kbuild.store import Entry, Store
from kbuild.toolchains import Toolchain

_DEB = re.compile(r"(?P<name>[^_]+)_(?P<version>[^_]+)_(?P<arch>[^_]+)\.deb")
_ARCHIVE = ".a"


def entries_used(toolchain: Toolchain, store: Store) -> tuple[Entry, ...]:
    """The store's entries that the toolchain's paths lead into, in name order."""
    inside = re.compile(re.escape(str(store.root)) + r"/([^/;:'\" ]+)/")
    names = {name for _, value in toolchain.cache for name in inside.findall(value)}
    return tuple(Entry(store.root / name) for name in sorted(names))


def ingredients_of(entry: Entry) -> Iterator[Ingredient]:
    """What the entry was made from; its own files where it was made from this machine's."""
    sources = entry.facts.get("sources", ())
    for source in sources:
        yield _from(source, entry)
    if not sources:
        yield from _made_here(entry)


def _from(source: Mapping[str, Any], entry: Entry) -> Ingredient:
    if "repository" in source:
        return _checkout(source, entry)
    if source.get("filename", "").endswith(".whl"):
        return _wheel(source)
    return _package(source)


def _wheel(source: Mapping[str, Any]) -> Ingredient:
    project, version = source["filename"].split("-")[:2]
    name = project.replace("_", "-").lower()
    purl = f"pkg:pypi/{name}@{quote(version)}?file_name={quote(source['filename'])}"
    return Ingredient(name, version, ("sha256", source["sha256"]), "the wheel", "headers", purl)


def _package(source: Mapping[str, Any]) -> Ingredient:
    """A Debian package: with name and version, or with the file's name, which holds both."""
    file = source.get("filename") or source["path"].rpartition("/")[2]
    match = _DEB.fullmatch(file)
    name, version = (match["name"], match["version"]) if match else (file, "")
    version = str(source.get("version", version))  # file names have no epoch
    arch = f"?arch={match['arch']}" if match else ""
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}{arch}"
    return Ingredient(name, version, ("sha256", source["sha256"]), "the package", "tool", purl)


def _checkout(source: Mapping[str, Any], entry: Entry) -> Ingredient:
    name = entry.facts["recipe"]["kind"].removeprefix("source-")
    address = quote(f"git+{source['repository']}@{source['commit']}", safe="")
    purl = f"pkg:generic/{name}@{entry.version}?vcs_url={address}"
    digest = ("gitCommit", source["commit"])
    return Ingredient(name, entry.version, digest, f"the tag {source['tag']}", "headers", purl)


def _made_here(entry: Entry) -> Iterator[Ingredient]:
    """Static libraries one by one, for they end up in results; the rest of the entry as a whole."""
    kind, rest = entry.facts["recipe"]["kind"], dict(entry.members)
    for path in sorted(rest):
        if path.endswith(_ARCHIVE):
            digest = ("sha256", rest.pop(path).split(":")[1])
            yield Ingredient(path, kind, digest, f"a file of {kind}", "static")
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    digest = ("sha256", hashlib.sha256(text.encode()).hexdigest())
    yield Ingredient(kind, entry.version, digest, "link stubs and headers", "interface")
