"""What units read of Torch, from the records that the object cache keeps beside its objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbuild.build.unit.cache import recorded
from kbuild.build.units import Unit

TORCH = "/torch/"
"""Name of Torch's headers in generated projects, given by `-ffile-prefix-map`."""
_BELOW = "torch/csrc/api/include/"


def torch_headers(units: Iterable[Unit]) -> Mapping[Unit, tuple[str, ...]]:
    """Unit -> what it read of Torch, relative to its include folders; each record is read once.

    A unit whose object was not kept, or is gone, is left out.
    """
    known: dict[str, tuple[str, ...]] = {}
    found = {}
    for unit in units:
        if not unit.record or not unit.torch:
            continue
        if unit.record not in known:
            known[unit.record] = tuple(_relative(unit.record))
        found[unit] = known[unit.record]
    return found


def _relative(record: str) -> Iterable[str]:
    try:
        names = recorded(record)
    except (OSError, ValueError, IndexError):
        return
    for name in names:
        if name.startswith(TORCH):
            yield name.removeprefix(TORCH).removeprefix(_BELOW)
