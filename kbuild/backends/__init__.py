"""One file per backend: its `[kernel.*]` keys, archs, flags, macros and CMake language.

A backend answers questions; it does not steer. `BACKENDS` finds every module here, and those that
other distributions register under the entry point group `kbuild.backends`.
"""

from kbuild.backends.base import BACKENDS, Backend

__all__ = ["BACKENDS", "Backend"]
