"""What one more pure-Python package costs beside an environment that is there: fetched and stored.

For each DSL an environment in a store that is empty at first, then one with `einops`, then one with
`packaging` as well. Fetched bytes are those that a proxy of this script's counted on their way from
the package index, index pages included; find-links folders are left out. Stored bytes are what the
store grew by, every file counted once however many links it has.

    python benchmarks/environments.py [--save] [--json] [--language triton] ...
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from counting_proxy import CountingProxy, counting_proxy
from report import save, table

from kbuild.languages.base import LANGUAGES
from kbuild.languages.environment import DslEnvironments
from kbuild.runtime.processes import LocalRunner
from kbuild.store import Store
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.toolchains.wheels.settings import IndexSettings, pip_settings

PINS = {
    "triton": ("triton==3.6.0",),
    "tilelang": ("tilelang==0.1.15",),
    "cute": ("nvidia-cutlass-dsl==4.6.1",),
}
FURTHER = ("einops==0.8.1", "packaging==25.0")
MOST = 5
"""Megabytes that one more pure-Python package may cost, fetched and stored."""
MEGABYTE = 1e6


def remote(settings: IndexSettings, proxy: str) -> IndexSettings:
    """The settings without folders on this machine, through the proxy."""
    if settings.no_index:
        sys.exit("pip is set up without a package index: there is nothing to measure")
    further = tuple(url for url in settings.extra_index_urls if not url.startswith("file:"))
    return replace(settings, find_links=(), extra_index_urls=further, proxy=proxy)


def stored(folder: Path) -> int:
    """Bytes on the disk, folders too; a file with several links counts once."""
    found = {}
    for base, _, names in os.walk(folder):
        for path in (Path(base), *(Path(base, name) for name in names)):
            status = path.lstat()
            found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def provided(
    known: DslEnvironments, language: str, pins: tuple[str, ...], proxy: CountingProxy
) -> dict[str, Any]:
    """One environment."""
    root = known.installer.store.root
    before, counted, began = stored(root), proxy.received, time.perf_counter()
    entry = known.provide(language, pins)
    wall = time.perf_counter() - began
    return {
        "environment": entry.name,
        "wheels": len(pins),
        "seconds": wall,
        "fetched MB": (proxy.received - counted) / MEGABYTE,
        "stored MB": (stored(root) - before) / MEGABYTE,
        "as installed": not entry.differences(),
    }


def measured(language: str) -> list[dict[str, Any]]:
    """The environment alone, and with one more package each time."""
    settings, rows = pip_settings(LocalRunner()), []
    upstream = settings.proxy or os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    with tempfile.TemporaryDirectory() as folder, counting_proxy(upstream) as proxy:
        store = Store(Path(folder, "store"))
        given = remote(settings, proxy.url)
        known = DslEnvironments(WheelInstaller(LocalRunner(), store, settings=given))
        own = PINS[language]
        for count in range(len(FURTHER) + 1):
            pins = LANGUAGES.get(language).environment((*own, *FURTHER[:count]), "cuda")
            rows.append(provided(known, language, pins, proxy))
        store.prune(0)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write results/environments.json")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--language", action="append", choices=[*PINS])
    args = parser.parse_args()
    found = {language: measured(language) for language in args.language or PINS}
    result = {
        **found,
        "targets": [
            {"what": f"{language}, one more package, {what}", "value": row[what], "target": MOST}
            for language, rows in found.items()
            for row in rows[1:]
            for what in ("fetched MB", "stored MB")
        ],
    }
    if args.save:
        save("environments", result)
    print(json.dumps(result, indent=1) if args.json else table(result["targets"]))


if __name__ == "__main__":
    main()
