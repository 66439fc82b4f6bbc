"""nvcc's intermediate files in a folder of the unit's own, which is gone afterwards.

Otherwise nvcc names them after its process, and those names stay in the object's symbols: the same
source would give another object each time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kbuild.build.unit.command import Command

_KEEPS = ("--keep", "-keep", "--keep-dir", "-keep-dir", "--save-temps", "-save-temps")


class Intermediates:
    """The folder while the compiler runs; none when the command keeps the files itself."""

    def __init__(self, command: Command, run: str) -> None:
        is_kept = any(word.partition("=")[0] in _KEEPS for word in command.words)
        self._folder = "" if is_kept else f"{run}/keep-{os.getpid()}"

    @property
    def words(self) -> list[str]:
        """Options for nvcc."""
        return ["--keep", f"--keep-dir={self._folder}"] if self._folder else []

    def __enter__(self) -> Intermediates:
        if self._folder:
            os.makedirs(self._folder, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if not self._folder:
            return
        for name in os.listdir(self._folder):
            os.unlink(f"{self._folder}/{name}")
        os.rmdir(self._folder)
