"""Link stubs: shared libraries with a name and nothing else.

A shared object may have undefined symbols, so to link one against a library only that library's
soname is needed; the real library is found when the result is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kbuild.errors import ToolchainError
from kbuild.run import Runner


@dataclass(frozen=True)
class StubMaker:
    """Makes stubs with the host's compiler."""

    cxx: Path
    runner: Runner

    def make(self, folder: Path, sonames: Iterable[str]) -> None:
        """Write one stub per soname, with the `libX.so` link beside `libX.so.N`.

        Raises:
            ToolchainError: the compiler failed.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for soname in sonames:
            self._one(folder / soname, soname)
            link_name(folder / soname)

    def make_named(self, file: Path, soname: str) -> None:
        """Write one stub under another name than its soname."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._one(file, soname)

    def _one(self, file: Path, soname: str) -> None:
        # No build id, no compiler's comment: the bytes depend on the soname alone.
        flags = ("-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{soname}", "-s")
        nothing = ("-x", "assembler", "/dev/null")
        done = self.runner.run((str(self.cxx), *flags, *nothing, "-o", str(file)))
        if not done.ok:
            raise ToolchainError(
                f"`{self.cxx}` cannot make the link stub {soname}: {done.output.strip()[-300:]}",
                hint="the toolchain from wheels needs GNU g++ or clang++ with a linker",
            )


def link_name(library: Path) -> None:
    """Link `libX.so` to `libX.so.N`, as the linker looks for it."""
    base, dot, version = library.name.partition(".so.")
    link = library.with_name(f"{base}.so")
    if dot and version and not link.exists():
        link.symlink_to(library.name)
