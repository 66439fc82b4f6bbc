"""What this machine has for building kernels, what is missing, and what mends it."""

from kbuild.diagnosis.item import Item
from kbuild.diagnosis.machine import OPTIONAL_TOOLS, diagnose

__all__ = ["OPTIONAL_TOOLS", "Item", "diagnose"]
