"""Translation units that take a chosen amount of memory to compile: class templates without end.

Each `Cell` is a class of its own with a dozen members; the compiler keeps every one of them. Its
memory is a straight line over the number of rows, so two small compilations tell how many rows an
amount takes. There is hardly any code to generate: the time goes into the memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 200
ROWS = range(1, 660)
"""The compiler's depth of templates is 900, of which the columns take their number."""
_PROBES = (20, 60)
_MEGABYTE = 1e6
_SOURCE = """\
// round {stamp}
namespace {name} {{
template <int I> struct Tag {{}};
template <int I, int J> struct Cell {{
  using self = Cell; using row = Tag<I>; using column = Tag<J>;
  row a; column b; int c[3];
  Cell(); Cell(const row&, const column&); ~Cell();
  template <class T> T as(const T&) const;
  int f0(row, column) const; int f1(const self&, int); int f2(row*, column*, self*);
  int f3(int (*)(row), column);
  self& operator+=(const self&); self operator+(const self&) const;
  static constexpr int value = I * 31 + J;
}};
template <int I, int J> struct Row {{
  static constexpr int value = Cell<I, J>::value ^ Row<I, J - 1>::value;
}};
template <int I> struct Row<I, 0> {{ static constexpr int value = 0; }};
template <int I> struct All {{
  static constexpr int value = Row<I, {columns}>::value ^ All<I - 1>::value;
}};
template <> struct All<0> {{ static constexpr int value = 1; }};
int value() {{ return All<{rows}>::value; }}
}}
"""


def source(name: str, rows: int, stamp: str) -> str:
    """One unit. `stamp` is a comment: with another one no cache has the object."""
    return _SOURCE.format(name=name, rows=rows, columns=COLUMNS, stamp=stamp)


@dataclass(frozen=True)
class Compiled:
    """What one compilation took."""

    rows: int
    megabytes: float
    seconds: float


def compiled(rows: int) -> Compiled:
    """Compile one unit here, with the compiler named `c++`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unit.cpp"
        path.write_text(source("probe", rows, "0"))
        argv = ["c++", "-std=c++17", "-O2", "-c", str(path), "-o", f"{folder}/unit.o"]
        began = time.perf_counter()
        process = subprocess.Popen(argv)  # noqa: TID251
        _, status, used = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{' '.join(argv)} failed")
        return Compiled(rows, used.ru_maxrss * 1024 / _MEGABYTE, time.perf_counter() - began)


def rows_for(megabytes: float) -> tuple[int, list[Compiled]]:
    """How many rows take that much memory, and what was measured to tell."""
    low, high = (compiled(rows) for rows in _PROBES)
    slope = (high.megabytes - low.megabytes) / (high.rows - low.rows)
    rows = round(low.rows + (megabytes - low.megabytes) / slope)
    if rows not in ROWS:
        sys.exit(f"{megabytes:.0f} MB would take {rows} rows; possible are 1 to {ROWS[-1]}")
    return rows, [low, high]
