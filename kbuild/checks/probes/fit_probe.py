"""Which of some variants the `kernels` client of this interpreter would load on this machine.

Usage: `python fit_probe.py VARIANT...`. Prints one JSON object with `state` and `reason`, and, when
the client could be asked, `chosen`, the best variant or null, and `refused`: by variant why not.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def answer(names: list[str]) -> dict[str, Any]:
    """`ok` with the client's decisions, or `absent` and why."""
    try:
        rules = importlib.import_module("kernels.variants")
    except ImportError as error:
        return {"state": "absent", "reason": str(error)}
    known, refused = [], {}
    for name in names:
        try:
            known.append(rules.parse_variant(name))
        except ValueError as error:
            refused[name] = str(error)
    chosen, trace = rules.resolve_variant(known)
    for decision in trace:
        if hasattr(decision, "reason"):
            refused[decision.variant.variant_str] = str(decision.reason)
    best = None if chosen is None else chosen.variant_str
    return {"state": "ok", "reason": "", "chosen": best, "refused": refused}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(answer(sys.argv[1:])) + "\n")
