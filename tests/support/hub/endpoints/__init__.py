"""What the Hub answers, one module for each thing that is asked about."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Import every module here: each puts its routes into the table."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
