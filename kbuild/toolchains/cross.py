"""Build for another processor: the entries of CMake, and Python's headers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kbuild.project.variant import System, host_system
from kbuild.system.files import sha256_of_file
from kbuild.system.store import Recipe, Store
from kbuild.toolchains.facts import Facts

_CONFIG = "pyconfig.h"


def cross_entries(system: str) -> tuple[tuple[str, str], ...]:
    """The cache entries by which CMake knows that it builds for another processor."""
    return (("CMAKE_SYSTEM_NAME", "Linux"), ("CMAKE_SYSTEM_PROCESSOR", System.parse(system).cpu))


def cross_python(facts: Facts, system: str, store: Store) -> Facts:
    """The facts of an interpreter, with headers that the cross compiler can read.

    Debian's `pyconfig.h` includes one of the processor, which is there for this machine's alone.
    Extensions for the limited API need nothing in it that differs between 64-bit processors.
    """
    include = Path(facts["python"]["include_dir"])
    config = include.parent / f"{host_system().cpu}-linux-gnu" / include.name / _CONFIG
    if not config.is_file():
        return facts
    place = f"{System.parse(system).cpu}-linux-gnu/{include.name}/{_CONFIG}"
    recipe = Recipe("python-config", include.name, {"sha256": sha256_of_file(config), "as": place})
    entry = store.ensure(recipe, partial(_copy, config, place))
    return {**facts, "python": {**facts["python"], "include_dir": f"{include};{entry.root}"}}


def _copy(config: Path, place: str, root: Path) -> dict[str, object]:
    target = root / place
    target.parent.mkdir(parents=True)
    target.write_bytes(config.read_bytes())
    return {"sources": []}
