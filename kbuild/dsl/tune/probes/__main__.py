"""Starts the programs of this folder in an interpreter without kbuild, or with another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType


def offer() -> None:
    """Make this folder importable under its name in kbuild, without the rest of kbuild."""
    names = ("kbuild", "kbuild.dsl", "kbuild.dsl.tune")
    places: dict[str, tuple[Path, ...]] = dict.fromkeys(names, ())
    places["kbuild.dsl.tune.probes"] = (Path(__file__).parent,)
    for name, folders in places.items():
        module = ModuleType(name)
        module.__path__ = [str(folder) for folder in folders]
        sys.modules[name] = module
    # The folder's modules would shadow others of the same name, such as `devices`.
    sys.path = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]


if __name__ == "__main__":
    offer()
    from kbuild.dsl.tune.probes.host import main

    main(*sys.argv[1:])
    # Python's own end would take Torch apart, which takes a second, and nothing else is left to do.
    os._exit(0)
