"""Amounts as people write and read them: `1.5G` of memory, `5h45m` of time, a file of `5.1 MB`."""

from __future__ import annotations

import re

from kbuild.system.errors import UsageError

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE)
_SECONDS = (86400, 3600, 60, 1)


def parse_memory(text: str, option: str = "--memory") -> int:
    """MiB of `4096M`, `1.5G` or `24 GiB`; units are powers of 1024.

    Raises:
        UsageError: the text is not an amount of memory, or less than 1 MiB.
    """
    amount = int(_mebibytes(text))
    if amount < 1:
        raise UsageError(
            f"{option}: `{text}` is not an amount of memory", hint="write it like 4096M or 1.5G"
        )
    return amount


def parse_size(text: str, option: str) -> int:
    """Bytes of `500K`, `1.5M` or `2 GiB`; units are powers of 1024.

    Raises:
        UsageError: the text is not a size, or none at all.
    """
    size = int(_mebibytes(text) * 1024 * 1024)
    if size < 1:
        raise UsageError(f"{option}: `{text}` is not a size", hint="write it like 500K or 1.5M")
    return size


def _mebibytes(text: str) -> float:
    match = _MEMORY.fullmatch(text.strip())
    return float(match[1]) * _MIB[match[2].upper()] if match else 0


def parse_duration(text: str, option: str = "--time-budget") -> int:
    """Seconds of `5h45m`, `90m`, `1d` or `30s`.

    Raises:
        UsageError: the text is not a duration, or none at all.
    """
    match = _DURATION.fullmatch(text.strip())
    parts = [int(part or 0) for part in match.groups()] if match else []
    total = sum(part * seconds for part, seconds in zip(parts, _SECONDS, strict=False))
    if total < 1:
        raise UsageError(f"{option}: `{text}` is not a duration", hint="write it like 5h45m or 90m")
    return total


_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_STEP = 1024


def size_text(size: int) -> str:
    """`870 bytes`, `12 KB` or `5.1 MB`, in units of 1024."""
    amount, unit = float(size), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 1 if unit and amount < 10 else 0  # noqa: PLR2004
    return f"{amount:.{digits}f} {_UNITS[unit]}"


def memory_text(mib: float) -> str:
    """`850 MB` or `5.1 GB`, in units of 1024."""
    return f"{mib:.0f} MB" if mib < 1000 else f"{mib / 1024:.1f} GB"  # noqa: PLR2004


def duration_text(seconds: float) -> str:
    """`12 ms`, `0.4 s`, `42 s`, `3 min 5 s` or `5 h 45 min`."""
    if 0 < seconds < 0.1:  # noqa: PLR2004
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"  # noqa: PLR2004


def time_text(milliseconds: float) -> str:
    """`0.42 µs`, `12.3 µs`, `1.23 ms` or `1.20 s`, with three digits that mean something."""
    rounded = float(f"{milliseconds:.3g}")
    for factor, word in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        value = rounded * factor
        if value >= 1:
            return f"{value:.3g} {word}" if value < 1000 else f"{value:.0f} {word}"  # noqa: PLR2004
    return f"{milliseconds * 1e3:.2g} µs"
