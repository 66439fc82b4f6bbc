"""Tuners of an author's, which choose one of several candidates for each call.

Their classes are like Triton's `Autotuner`: `_bench` measures a candidate, `fn` is the tuned
function, and `cache` has the fastest candidate for each key.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Choices(dict[Any, Any]):
    """The `cache` of a tuner, which has an answer for every key: nothing is measured."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        super().__init__()
        self._choose = choose

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: Any) -> Any:
        config = self[key] = self._choose(key)
        return config


def replace_caches(kind: Any, new_cache: Callable[[Any], dict[Any, Any]]) -> None:
    """Let a class of tuners keep its candidates in other dictionaries."""
    initialize = kind.__init__

    @functools.wraps(initialize)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        initialize(self, *args, **kwargs)
        self.cache = new_cache(self)

    kind.__init__ = __init__


def described_key(describe: Callable[[Any], Any], tuner: Any, arch: str, key: Any) -> list[Any]:
    """A tuner's key as JSON, with the function and the arch that it is for."""
    return [describe(tuner.fn), arch, *map(describe, key)]


class Winners:
    """Candidates that were chosen when calls were recorded."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], describe: Callable[[Any], Any]) -> None:
        """`rows` have `device`, `key` and `config`."""
        self._rows, self._describe = rows, describe

    def choose(self, tuner: Any, arch: str, device: str, key: Any) -> Any:
        """Return the candidate of the nearest recorded call.

        Of calls that differ in sizes alone, those on the same device are nearest, then
        measured ones.

        Raises:
            RuntimeError: no call of the tuned function was recorded for the arch.
        """
        wanted = described_key(self._describe, tuner, arch, key)
        known = {str(self._config(config)): config for config in tuner.configs}
        rows = []
        for row in self._rows:
            if row["key"][:2] == wanted[:2] and str(row["config"]) in known:
                unequal, ratio = _distance(row["key"], wanted)
                elsewhere = row["device"] != device, not row["device"]
                # A call of other dtypes was compiled to something else.
                rows.append((unequal, *elsewhere, ratio, str(row["config"])))
        if not rows:
            raise RuntimeError(
                f"no candidate of `{tuner.fn.__name__}` was recorded for {arch}. "
                "Record a call in the kernel's project: `kbuild capture --record -- COMMAND`"
            )
        return known[min(rows)[-1]]

    def _config(self, config: Any) -> dict[str, Any]:
        return described_config(self._describe, config)


def described_config(describe: Callable[[Any], Any], config: Any) -> dict[str, Any]:
    """A candidate as JSON."""
    return {name: describe(value) for name, value in config.all_kwargs().items()}


def _distance(left: Any, right: Any) -> tuple[int, float]:
    """Number of unequal values in two keys, and how far their sizes are apart, in octaves."""
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        pairs = [_distance(*pair) for pair in zip(left, right, strict=False)]
        unequal = abs(len(left) - len(right)) + sum(pair[0] for pair in pairs)
        return unequal, sum(pair[1] for pair in pairs)
    if type(left) is type(right) is int:
        return 0, abs(math.log2(1 + abs(left)) - math.log2(1 + abs(right)))
    return int(left != right), 0.0
