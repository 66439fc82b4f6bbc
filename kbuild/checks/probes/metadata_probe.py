"""Reads one `metadata.json` with the `kernels` client of the interpreter that runs this.

Usage: `python metadata_probe.py FILE`. Prints one JSON object with `state` and `reason`.
"""

from __future__ import annotations

import importlib
import json
import sys


def answer(path: str) -> tuple[str, str]:
    """`ok`, `refused` or `absent`, and why."""
    try:
        kernels = importlib.import_module("kernels")
    except ImportError as error:
        return "absent", str(error)
    client = f"kernels {kernels.__version__}"
    try:
        kernels.Metadata.read_from_file(path)
    except (OSError, ValueError) as error:
        return "refused", f"{client}: {error}"
    return "ok", client


if __name__ == "__main__":
    state, reason = answer(sys.argv[1])
    sys.stdout.write(json.dumps({"state": state, "reason": reason}) + "\n")
