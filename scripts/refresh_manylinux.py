"""Refresh `kbuild/checks/data/manylinux.json` from the installed auditwheel.

Usage: `pip install auditwheel && python scripts/refresh_manylinux.py [--check]`.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

FILE = "manylinux-policy.json"
TARGET = Path(__file__).parent.parent / "kbuild/checks/data/manylinux.json"


def document() -> dict[str, object]:
    """Every policy, oldest first; `linux`, which promises nothing, is left out."""
    text = (files("auditwheel") / "policy" / FILE).read_text("utf-8")
    # Their numbers say which are older.
    policies = sorted(json.loads(text), key=lambda policy: -int(policy["priority"]))
    return {
        "source": f"auditwheel {version('auditwheel')}, policy/{FILE}",
        "policies": [entry(policy) for policy in policies if policy["name"] != "linux"],
    }


def entry(policy: dict[str, Any]) -> dict[str, object]:
    """A policy in kbuild's words."""
    return {
        "name": policy["name"],
        "aliases": policy["aliases"],
        "libraries": policy["lib_whitelist"],
        "withheld": policy["blacklist"],
        "versions": policy["symbol_versions"],
    }


def text_of(found: dict[str, object]) -> str:
    """JSON with one line for each family of versions."""
    short: dict[str, str] = {}

    def fold(value: object) -> object:
        if isinstance(value, dict):
            return {key: fold(entry) for key, entry in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [fold(entry) for entry in value]
        if isinstance(value, list):
            mark = f"@{len(short)}@"
            short[f'"{mark}"'] = json.dumps(value)
            return mark
        return value

    text = json.dumps(fold(found), indent=2) + "\n"
    for mark, line in short.items():
        text = text.replace(mark, line)
    return text


def main() -> int:
    """Write the file; with `--check`, say whether it is stale."""
    text = text_of(document())
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text("utf-8") == text
        print(f"{TARGET.name} is {'up to date' if same else 'stale'}")
        return 0 if same else 1
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
