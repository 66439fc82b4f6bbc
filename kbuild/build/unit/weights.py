"""How much memory a unit will take: what it took last time, or what its language usually takes."""

from __future__ import annotations

import os

from kbuild.build.unit import hashes

DEFAULTS = {"CXX": 1536, "OBJCXX": 1536, "CUDA": 3072, "HIP": 3072}
"""MiB of one compiler process that sees all of Torch: 1.3 to 1.4 GiB were measured with g++ 12,
2.75 GiB with nvcc 13. HIP is taken to be like CUDA."""
_MARGIN = 1.1


class History:
    """Peaks and times of units, one small file per unit."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def recall(self, *keys: str) -> tuple[int, float] | None:
        """(peak in MiB, seconds) of the last compilation under the first key that is known."""
        for key in keys:
            try:
                peak, seconds = hashes.read(self._file(key)).split()
                return int(peak), float(seconds)
            except (OSError, ValueError):
                continue
        return None

    def record(self, keys: tuple[str, ...], peak: int, seconds: float) -> None:
        """Remember one compilation."""
        for key in keys:
            target = self._file(key)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            hashes.write(target, f"{peak} {seconds:.2f}".encode())

    def _file(self, key: str) -> str:
        return f"{self._folder}/{key[:2]}/{key[2:]}"


def weight(language: str, last: tuple[int, float] | None) -> int:
    """MiB to reserve for each of the unit's threads.

    The kernel tells the peak of a compilation's largest process, so threads do not change it.
    """
    return max(1, int(last[0] * _MARGIN) if last else DEFAULTS.get(language, DEFAULTS["CXX"]))
