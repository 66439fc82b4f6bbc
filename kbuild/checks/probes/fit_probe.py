"""Prints which variants the `kernels` client of this interpreter would load on this machine.

Arguments: `VARIANT...`, see `start.py`. Says one JSON object with `state` and `reason`, and, when
the client could be asked, `chosen`, the best variant or null, and `refused`, by variant why not.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def answer(names: tuple[str, ...]) -> dict[str, Any]:
    """`ok` with the client's decision, or `absent` and why."""
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
    for step in trace:
        if hasattr(step, "reason"):
            refused[step.variant.variant_str] = str(step.reason)
    best = None if chosen is None else chosen.variant_str
    return {"state": "ok", "reason": "", "chosen": best, "refused": refused}


def main(say: Callable[[dict[str, Any]], None], *names: str) -> None:
    """Answer, and say it."""
    say(answer(names))
