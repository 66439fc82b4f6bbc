"""What can be proved of sources on a machine that has no compiler for them.

A backend says in `type_check` and `include_check` which of it makes sense; nothing here compiles.
"""

from collections.abc import Mapping

SOURCE_CHECKS: Mapping[str, str] = {
    "types": "C++ for XPU passes the host compiler's type check with the SYCL and Torch headers.",
    "includes": "Every `#include` of Metal's sources leads to a file.",
}
"""Checks of a project's sources that no check of outputs is named like."""
