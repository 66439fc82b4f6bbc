"""Reads one `metadata.json` with the `kernels` client of the interpreter that runs this.

Argument: `FILE`, see `start.py`. Says one JSON object with `state` and `reason`, and, when the
client reads it, the `files` that this is due to.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def reader() -> Any:
    """The client's `Metadata`, by itself where the client allows it.

    It is compiled code in a module of its own. The package around it imports the Hub's client,
    which takes ten times as long as the rest of this program and reads no metadata.
    """
    spec = importlib.util.find_spec("kernels")
    if spec is None or not spec.submodule_search_locations:
        return importlib.import_module("kernels").Metadata
    sys.modules["kernels"] = importlib.util.module_from_spec(spec)  # not executed
    try:
        return importlib.import_module("kernels._rust").Metadata
    except (ImportError, AttributeError):
        del sys.modules["kernels"]
        return importlib.import_module("kernels").Metadata


def client() -> str:
    """Name and version of the client."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"kernels {version('kernels')}"
    except PackageNotFoundError:
        return "kernels"


def answer(path: str) -> tuple[str, str]:
    """`ok`, `refused` or `absent`, and why."""
    try:
        metadata = reader()
    except ImportError as error:
        return "absent", str(error)
    try:
        metadata.read_from_file(path)
    except (OSError, ValueError) as error:
        return "refused", f"{client()}: {error}"
    return "ok", ""


def decided_by() -> list[str]:
    """The surroundings of this process, by `surroundings.py` beside this file."""
    path = Path(__file__).with_name("surroundings.py")
    spec = importlib.util.spec_from_file_location("surroundings", path)
    if spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.surroundings())


def main(say: Callable[[dict[str, Any]], None], path: str) -> None:
    """Answer, and say it."""
    state, reason = answer(path)
    files = {"files": decided_by()} if state == "ok" else {}
    say({"state": state, "reason": reason, **files})
