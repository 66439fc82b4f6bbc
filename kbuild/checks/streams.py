"""Kernels in CuTe DSL are launched on the stream of their caller."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import elf_libraries

MARK = b"kbuild: objects launch on the stream of the call"
"""Mark of every launcher that sets the stream, see `templates/launcher/object_launch.h`."""
_DSL = b"nvidia-cutlass-dsl "
"""The entry of a launcher that names the compiler of its objects; a version follows."""
_LAUNCH = "cudaLaunchKernelExC"


@CHECKS.add
class StreamsCheck(LibraryCheck):
    """Objects of CuTe DSL launch on the default stream what their host function gives none.

    Then results are wrong on any other stream, and a captured graph is empty. Which functions took
    a stream is not to be seen in a library any more.
    """

    name = "streams"
    summary = "Kernels in CuTe DSL are launched on the stream of their caller."

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per library whose launcher leaves streams to the objects."""
        for where, elf in elf_libraries(output):
            takes_launch = any(symbol.name == _LAUNCH for symbol in elf.undefined)
            if takes_launch and _is_of_cute(output.root / where):
                what = (
                    "its CuTe kernels were linked by an earlier kbuild: launches without a "
                    "stream run on the default stream, so results on other streams are wrong and "
                    "captured graphs are empty"
                )
                yield Finding(self.name, "warning", where, what, "build the variant again")


def _is_of_cute(path: Path) -> bool:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return data.find(_DSL) >= 0 and data.find(MARK) < 0
