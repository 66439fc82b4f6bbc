"""One file per check on what a build produced; each yields findings and fixes nothing.

`CHECKS` finds every module here, and those of the entry point group `kbuild.checks`. Policies and
symbol tables are data under `checks/data/`.
"""

from kbuild.checks.base import CHECKS, Check, CheckLimits, Finding, Output

__all__ = ["CHECKS", "Check", "CheckLimits", "Finding", "Output"]
