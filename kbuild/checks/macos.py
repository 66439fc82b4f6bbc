"""A Mach-O library loads on the oldest macOS promised, and finds its libraries in the process."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import macho_libraries
from kbuild.checks.policies import load_data, matches_any
from kbuild.checks.readers.macho import MachOSlice
from kbuild.system.version import Version


@CHECKS.add
class MacOsCheck(LibraryCheck):
    """Deployment target, run paths and needed libraries of each CPU's slice."""

    name = "macos"
    summary = (
        "Mach-O libraries load on the oldest supported macOS, and have no run paths of the build."
    )
    os = "darwin"

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per fault and slice."""
        limit = output.limits.macos
        for where, slices in macho_libraries(output):
            for part in slices:
                for what, hint in (*_target(part, limit), *_paths(part), *_needed(part, output)):
                    cpu = f"{part.cpu}: " if len(slices) > 1 else ""
                    yield Finding(self.name, "error", where, f"{cpu}{what}", hint)


def _target(part: MachOSlice, limit: Version | None) -> Iterator[tuple[str, str]]:
    hint = f"compile and link with `-mmacosx-version-min={limit}`"
    if not part.for_macos:
        yield "made for another system than macOS (LC_BUILD_VERSION)", "build with macOS's SDK"
    elif part.minos is None:
        yield "does not say which macOS it needs (no LC_BUILD_VERSION)", hint
    elif limit is not None and part.minos > limit:
        yield f"needs macOS {part.minos}, after {limit}", hint


def _paths(part: MachOSlice) -> Iterator[tuple[str, str]]:
    for path in part.rpaths:
        yield f"LC_RPATH is `{path}`", "set `CMAKE_SKIP_RPATH` to ON, and drop `-Wl,-rpath`"


def _needed(part: MachOSlice, output: Output) -> Iterator[tuple[str, str]]:
    tables = load_data("libraries")["macos"]
    frameworks = [output.variant.framework] if output.variant else tables["frameworks"]
    allowed = [*tables["system"], *(n for f in frameworks for n in tables["frameworks"].get(f, ()))]
    own = {path.name for path in output.libraries()}
    for library in part.needed:
        name = library.rpartition("/")[2]
        # An absolute path is of the system; everything else has to be in the process already.
        if library.startswith("/"):
            fits = matches_any(library, tuple(tables["paths"]))
        else:
            fits = matches_any(name, tuple(allowed)) or name in own
        if not fits:
            hint = "link it statically, or remove it from the link line"
            if library.startswith("/"):
                hint = "link by `@rpath/`, as Torch's libraries are; a path is only on this machine"
            yield f"needs `{library}`, which neither the system nor Torch provides", hint
