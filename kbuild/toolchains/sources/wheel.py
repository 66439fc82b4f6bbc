"""Headers out of a pinned wheel, through the package index that pip is set up for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.run import Runner
from kbuild.toolchains.sources.download import Download
from kbuild.toolchains.sources.pins import Pin
from kbuild.toolchains.wheels.archive import Place
from kbuild.toolchains.wheels.fetch import Fetcher
from kbuild.toolchains.wheels.index import Index
from kbuild.toolchains.wheels.settings import pip_settings

WAY = "package index"


def from_wheel(pin: Pin, runner: Runner, environ: Mapping[str, str]) -> Download | str:
    """The way through the package index, or why there is none."""
    if pin.wheel is None:
        return f"no wheel is known that holds {pin.title}"
    locked, root = pin.wheel.locked, pin.wheel.root
    place = headers_below(root, pin.library.include)

    def make(folder: Path) -> Mapping[str, Any]:
        with Index(pip_settings(runner, environ)) as index:
            fetched = Fetcher(index).unpack((locked,), folder, place)
        return {"sources": [fetched.to_json()]}

    return Download(
        pin=pin,
        way=WAY,
        origin=f"{locked.project} {locked.version} of the package index, "
        f"sha256 {locked.sha256[:12]}",
        digest=f"sha256:{locked.sha256}",
        inputs={"wheel": locked.sha256, "root": root, "include": list(pin.library.include)},
        make=make,
    )


def headers_below(root: str, include: tuple[str, ...]) -> Place:
    """Members of the include folders, and licences; see `archive.Place`."""

    def place(member: str) -> str | None:
        name = member.rpartition("/")[2]
        if ".dist-info/" in member:
            return name if name.startswith("LICENSE") else None
        inside = member.removeprefix(f"{root}/")
        kept = inside != member and any(inside.startswith(f"{folder}/") for folder in include)
        return inside if kept else None

    return place
