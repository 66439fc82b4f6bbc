"""Which of some variants the `kernels` client of this interpreter would load on this machine.

Arguments: `VARIANT... [-- VARIANT...]...`, one group for each version, see `start.py`. Says one
JSON object with `state` and `reason`, and, when the client could be asked, `groups`: for each
group `chosen`, the best variant or null, and `refused`, by variant why not.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

SEPARATOR = "--"


def answer(names: list[str]) -> dict[str, Any]:
    """`ok` with the client's decisions, or `absent` and why."""
    try:
        rules = importlib.import_module("kernels.variants")
    except ImportError as error:
        return {"state": "absent", "reason": str(error)}
    decisions = [decision(rules, group) for group in groups_of(names)]
    return {"state": "ok", "reason": "", "groups": decisions}


def groups_of(names: list[str]) -> list[list[str]]:
    """The names between the separators."""
    groups: list[list[str]] = [[]]
    for name in names:
        if name == SEPARATOR:
            groups.append([])
        else:
            groups[-1].append(name)
    return groups


def decision(rules: Any, names: list[str]) -> dict[str, Any]:
    """What the client says of one version's variants."""
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
    return {"chosen": None if chosen is None else chosen.variant_str, "refused": refused}


def main(say: Callable[[dict[str, Any]], None], *names: str) -> None:
    """Answer, and say it."""
    say(answer(list(names)))
