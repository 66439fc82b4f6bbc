"""A PE library imports only from Windows, Torch and the backend's runtime, for every Python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import pe_libraries
from kbuild.checks.policies import load_data, matches_any

_PYTHON = re.compile(r"python3(?P<minor>\d+)(?P<kind>t?(?:_d)?)\.dll")


@CHECKS.add
class WindowsCheck(LibraryCheck):
    """Imported DLLs against the list in `data/libraries.json`, without regard to case."""

    name = "windows"
    summary = "PE libraries import from Windows, Torch, the backend's runtime and `python3.dll`."
    os = "windows"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per DLL that is not allowed."""
        # Patterns in lower case; those of every variant when it is unknown.
        tables = load_data("libraries")["windows"]
        keys = (
            [output.variant.framework, output.variant.backend] if output.variant else tables.keys()
        )
        patterns = [*tables["system"], *(name for key in keys for name in tables.get(key, ()))]
        release = output.variant.backend_version if output.variant else None
        major = str(release.major) if release else "*"
        allowed = tuple(pattern.replace("{major}", major) for pattern in patterns)
        own = tuple(path.name.lower() for path in output.libraries())
        for where, file in pe_libraries(output):
            for library, names in file.imports.items():
                if not matches_any(library.lower(), (*allowed, *own)):
                    what, hint = _message(library)
                    yield Finding(self.name, "error", where, what, hint, names)


def _message(library: str) -> tuple[str, str]:
    python = _PYTHON.fullmatch(library.lower())
    if python is None:
        return (
            f"imports from `{library}`, which neither Windows nor Torch provides",
            "link it statically, or remove it from the link line",
        )
    if python["kind"].endswith("_d"):
        return f"imports from `{library}`, a debug build of Python", "compile without `_DEBUG`"
    return (
        f"imports from `{library}`, so only CPython 3.{python['minor']} loads it",
        "link `python3.lib`, which is the stable ABI's, and define `Py_LIMITED_API`",
    )
