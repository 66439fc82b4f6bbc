"""Tuned tables as values: which candidate was the fastest, measured on one GPU model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbuild.languages.spec.values import Candidate, Given, Scalar

RowKey = tuple[str, str, int, tuple[tuple[str, str], ...], tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """The fastest candidate of one launch for one set of dtypes and one key."""

    kernel: str
    op: str
    launch: int
    dtypes: tuple[tuple[str, str], ...]
    """Tensor -> dtype, in the op's order."""
    key: tuple[int, ...]
    """Values of the op's `key` expressions, in their order."""
    constants: Given
    """The candidate's constants; together with `options` they name it."""
    options: Given
    microseconds: float
    default_microseconds: float
    """What the default candidate took for the same call; the candidate's own time if it is it."""

    @property
    def place(self) -> RowKey:
        """What the row is for; a table has one row for each."""
        return self.kernel, self.op, self.launch, tuple(sorted(self.dtypes)), self.key

    def names(self, candidate: Candidate) -> bool:
        """True when the row's constants and options are the candidate's."""
        return same_pairs(self.constants, candidate.constants) and same_pairs(
            self.options, candidate.options
        )

    def among(self, candidates: Sequence[Candidate]) -> int | None:
        """The index of the row's candidate; None when there is none like it any more."""
        found = (index for index, one in enumerate(candidates) if self.names(one))
        return next(found, None)


@dataclass(frozen=True)
class Table:
    """What was measured on one GPU model."""

    device: str
    """The driver's name for it: `NVIDIA H200`."""
    arch: str
    """`sm_90` (without a feature letter), `gfx942`."""
    rows: tuple[Row, ...] = ()
    driver: str = ""
    """Release of the GPU's driver."""
    versions: tuple[tuple[str, str], ...] = ()
    """Program -> version, for the record: `kbuild`, `torch`, the DSL."""

    def of(self, kernel: str, op: str, launch: int) -> tuple[Row, ...]:
        """The rows of one launch."""
        wanted = (kernel, op, launch)
        return tuple(row for row in self.rows if (row.kernel, row.op, row.launch) == wanted)

    def merged(self, newer: Table) -> Table:
        """This table with the rows of a newer measurement; where both have a row, the newer's.

        What is said of driver and versions is the newer's, where it says anything.

        Raises:
            ValueError: they are of different devices.
        """
        if (newer.device, newer.arch) != (self.device, self.arch):
            raise ValueError(f"{newer.device} ({newer.arch}) is not {self.device} ({self.arch})")
        versions = {**dict(self.versions), **dict(newer.versions)}
        return replace(
            self,
            rows=sorted_rows((*self.rows, *newer.rows)),
            driver=newer.driver or self.driver,
            versions=tuple(sorted(versions.items())),
        )


def merge(tables: Iterable[Table]) -> tuple[Table, ...]:
    """One table for each device, by name; later tables are newer."""
    found: dict[tuple[str, str], Table] = {}
    for table in tables:
        known = found.setdefault((table.device, table.arch), replace(table, rows=()))
        found[table.device, table.arch] = known.merged(table)
    return tuple(found[key] for key in sorted(found))


def sorted_rows(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows in the order of what they are for; of several for the same, the last."""
    last: Mapping[RowKey, Row] = {row.place: row for row in rows}
    return tuple(last[place] for place in sorted(last))


def same_pairs(one: Given, other: Given) -> bool:
    """True for the same names with the same values, in any order; `True` is not `1`."""
    return _typed(one) == _typed(other)


def _typed(pairs: Given) -> dict[str, tuple[bool, Scalar | None]]:
    return {name: (isinstance(value, bool), value) for name, value in pairs}
