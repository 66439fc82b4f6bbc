"""What is known of the licences of ingredients, and of how they enter a result: `licences.toml`."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from kbuild.provenance.ingredient import Ingredient

_FILE = Path(__file__).with_name("licences.toml")


def licensed(ingredient: Ingredient) -> Ingredient:
    """The ingredient, with what is known of it."""
    for entry in _known():
        if fnmatchcase(ingredient.name.lower(), entry["name"]):
            return replace(ingredient, licence=entry["licence"], enters=entry["enters"])
    return ingredient


@lru_cache(maxsize=1)
def _known() -> tuple[dict[str, Any], ...]:
    return tuple(tomli.loads(_FILE.read_text("utf-8"))["known"])
