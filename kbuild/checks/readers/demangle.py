"""Names of C++ symbols as C++ writes them, by the demangler of the system's C++ library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")
_LONGEST = 10_000
"""Characters of a name that is read; a compiler's names of kernels may be long, others are odd."""


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """`scale(float*, int)` of `_Z5scalePfi`; the name itself where it cannot be read."""
    if not name.startswith("_Z") or len(name) > _LONGEST or (read := _demangler()) is None:
        return name
    return read(name.encode()) or name


def can_demangle() -> bool:
    """False where there is no C++ library to ask."""
    return _demangler() is not None


@lru_cache(maxsize=1)
def _demangler() -> Callable[[bytes], str] | None:
    for library in _LIBRARIES:
        try:
            loaded = ctypes.CDLL(library)
            function, free = getattr(loaded, "__cxa_demangle"), ctypes.CDLL(None).free
        except (OSError, AttributeError, TypeError):
            continue
        function.restype, free.restype, free.argtypes = ctypes.c_void_p, None, [ctypes.c_void_p]

        def read(name: bytes) -> str:
            status = ctypes.c_int()
            text = function(name, None, None, ctypes.byref(status))  # noqa: B023 - it returns
            if not text:
                return ""
            value = ctypes.string_at(text).decode("utf-8", "replace")
            free(text)  # noqa: B023
            return value

        return read
    return None
