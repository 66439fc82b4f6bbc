"""Two variant directories side by side: which files differ, and where in them."""

from kbuild.comparison.folders import compare_folders
from kbuild.comparison.model import Difference, Place

__all__ = ["Difference", "Place", "compare_folders"]
