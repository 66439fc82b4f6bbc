"""Kernels that a DSL writes as Triton sources when an author's module is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton.runtime import driver

_PROPERTIES = {
    "max_shared_mem": 3 << 15, "max_num_regs": 65536, "multiprocessor_count": 1, "warpSize": 32,
}  # fmt: skip
"""Device properties that generators derive defaults from; made up, and the same for every GPU."""


class GeneratorDriver:
    """A driver of Triton for generators; nothing is launched with it."""

    @property
    def utils(self) -> GeneratorDriver:
        """The driver itself, which answers the questions about the device."""
        return self

    def get_current_device(self) -> int:
        """Number of the only device."""
        return 0

    def get_device_properties(self, _: int) -> Mapping[str, int]:
        """Properties that are the same for every GPU, so that the sources are the same."""
        return _PROPERTIES


def install_driver() -> None:
    """Let generators see a GPU, for the rest of the process."""
    driver.set_active(GeneratorDriver())


def generated_sources(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """File -> source of the kernels that runs launched and no author has written, in order."""
    home = f"{Path.home()}/"
    files = (
        step["file"]
        for run in runs
        for trace in run["traces"]
        for step in trace["steps"]
        if "launch" in step
    )
    return {
        file: Path(file).read_text("utf-8")
        for file in dict.fromkeys(files)
        if file.startswith(home)
    }
