"""What a policy's system libraries export: the lists that link stubs are made from.

`data/<policy>-<cpu>.json.gz` holds library -> version -> symbols; `scripts/manylinux_symbols.py`
writes it. A symbol is `name` (a function), `name=<bytes>` (data) or `name~<bytes>` (thread-local).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from kbuild.errors import ToolchainError

Kind = Literal["function", "object", "tls_object"]
DEFAULT_POLICY = "manylinux_2_28"
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
LIBRARIES: Mapping[str, str] = {
    "libc.so.6": "libc.so",
    "libm.so.6": "libm.so",
    "libmvec.so.1": "libmvec.so",
    "libpthread.so.0": "libpthread.so",
    "libdl.so.2": "libdl.so",
    "librt.so.1": "librt.so",
    "libresolv.so.2": "libresolv.so",
    "libutil.so.1": "libutil.so",
    "libgcc_s.so.1": "libgcc_s.so",
    "libstdc++.so.6": "libstdc++.so",
}
"""Name at run time -> name that `-l` finds."""
_ENTRY = re.compile(r"(?P<name>[^=~]+)(?:(?P<mark>[=~])(?P<size>\d+))?")
_KINDS: Mapping[str | None, Kind] = {None: "function", "=": "object", "~": "tls_object"}


@dataclass(frozen=True)
class Symbol:
    """One exported symbol of one version."""

    name: str
    version: str
    kind: Kind = "function"
    size: int = 0
    """Bytes of data; 0 for functions."""


@dataclass(frozen=True)
class Interface:
    """What the policy's system offers to programs of one CPU."""

    policy: str
    cpu: str
    libraries: Mapping[str, tuple[Symbol, ...]]

    @property
    def names(self) -> frozenset[str]:
        """Every symbol's name."""
        return frozenset(symbol.name for own in self.libraries.values() for symbol in own)

    @property
    def loader(self) -> str:
        """The dynamic linker, which defines a few symbols of its own."""
        return LOADERS[self.cpu]


def data_file(policy: str, cpu: str) -> Path:
    """Where the lists of one policy and CPU are kept."""
    return Path(__file__).with_name("data") / f"{policy}-{cpu}.json.gz"


@lru_cache(maxsize=4)
def interface(policy: str, cpu: str) -> Interface:
    """Read the lists.

    Raises:
        ToolchainError: there are none for this policy and CPU.
    """
    try:
        text = gzip.decompress(data_file(policy, cpu).read_bytes())
    except FileNotFoundError:
        raise ToolchainError(
            f"no link stubs for {policy} on {cpu}",
            hint=f"there are stubs of {DEFAULT_POLICY} for {' and '.join(LOADERS)}",
        ) from None
    libraries = json.loads(text)["libraries"]
    return Interface(policy, cpu, {name: tuple(_symbols(own)) for name, own in libraries.items()})


def _symbols(versions: Mapping[str, Iterable[str]]) -> Iterator[Symbol]:
    for version, entries in versions.items():
        for entry in entries:
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise ValueError(f"`{entry}` is no symbol")
            yield Symbol(match["name"], version, _KINDS[match["mark"]], int(match["size"] or 0))
