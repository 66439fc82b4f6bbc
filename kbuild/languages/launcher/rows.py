"""Tuned tables as C++: rows of one launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbuild.languages.launcher.text import array, literal, number
from kbuild.languages.launcher.variants import Variants, candidate_of
from kbuild.languages.tables import Row, Table


def measured_on(tables: Sequence[Table]) -> str:
    """The GPU models of all tables."""
    rows = [f"{{{literal(table.device)}, {literal(table.arch)}}}" for table in tables]
    return array("MeasuredOn", "measured_on", rows)


def rows_of(variants: Variants, launch: int, tables: Sequence[Table]) -> list[tuple[int, ...]]:
    """Table, dtypes, candidate and then the key of every row; -1 for candidates without images."""
    op = variants.op
    found = []
    for index, table in enumerate(tables):
        for row in table.of(op.kernel, op.name, launch):
            at = candidate_of(variants.launched.launch.candidates, row.constants, row.options)
            place = variants.candidates.index(at) if at in variants.candidates else -1
            if len(row.key) == len(op.key):
                found += [(index, dtypes, place, *row.key) for dtypes in _sets(variants, row)]
    return found


def row_tables(name: str, rows: Sequence[tuple[int, ...]]) -> str:
    """`NAME_rows` and `NAME_keys`."""
    heads = [f"{{{table}, {dtypes}, {candidate}}}" for table, dtypes, candidate, *_ in rows]
    keys = [", ".join(map(number, row[3:])) for row in rows if row[3:]]
    return array("Row", f"{name}_rows", heads) + array("Int", f"{name}_keys", keys)


def _sets(variants: Variants, row: Row) -> Iterator[int]:
    """The kinds of calls by dtypes that a row speaks of."""
    wanted = dict(row.dtypes)
    for index, dtypes in enumerate(variants.op.dtype_sets()):
        if all(dtypes.get(tensor) == dtype for tensor, dtype in wanted.items()):
            yield index
