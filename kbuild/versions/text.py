"""Differences between versions as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kbuild.hub.difference import size_in_words
from kbuild.versions.difference import Difference, Fact, FileChange, VariantChange

MARKS = {"added": "+", "removed": "-", "changed": "~"}
_MANY = 6
_ALL = 2
"""Changed variants from which on what they share is said once."""


def in_lines(told: Difference, *, everything: bool = False) -> Iterator[str]:
    """The difference, for people.

    Args:
        told: what differs.
        everything: also name each file of each variant.
    """
    yield f"{told.old} -> {told.new}"
    if not told:
        yield "  no difference"
        return
    yield from _interface(told)
    yield from _variants(told, everything=everything)
    if told.others:
        yield "  other files"
        yield from (f"    {_file(change)}" for change in told.others)


def _interface(told: Difference) -> Iterator[str]:
    yield "  interface"
    for change in told.interface:
        breaks = " (breaks callers)" if change.breaking else ""
        yield f"    {MARKS[change.kind]} {change}{breaks}"
    if told.unread:
        yield f"    not compared: {told.unread}"
    elif not told.interface:
        yield "    no difference"
    if not told.unread:
        yield f"    {told.bump}"


def _variants(told: Difference, *, everything: bool) -> Iterator[str]:
    if not (told.variants or told.unchanged):
        return
    yield "  variants"
    shared = _shared(told.variants)
    for change in told.variants:
        yield f"    {MARKS[change.kind]} {change.name}{_size(change.before, change.after)}"
        own = [fact for fact in change.facts if fact not in shared]
        yield from (f"        {_fact(fact)}" for fact in own)
        if everything or 0 < len(change.files) <= _MANY:
            yield from (f"        {_file(file)}" for file in change.files)
        elif change.files:
            yield f"        {_counts(change.files)}"
    for fact in shared:
        yield f"    in all changed ones: {_fact(fact)}"
    if told.unchanged:
        count = len(told.unchanged)
        yield f"    = {count} variant{'s' * (count != 1)} unchanged"


def _shared(variants: Sequence[VariantChange]) -> list[Fact]:
    """Facts that every changed variant has, when there are several."""
    changed = [change for change in variants if change.kind == "changed"]
    if len(changed) < _ALL:
        return []
    counts = Counter(fact for change in changed for fact in change.facts)
    return [fact for fact, count in counts.items() if count == len(changed)]


def _fact(fact: Fact) -> str:
    return f"{fact.name}: {fact.before or 'nothing'} -> {fact.after or 'nothing'}"


def _file(change: FileChange) -> str:
    return f"{MARKS[change.kind]} {change.path}{_size(change.before, change.after)}"


def _size(before: int | None, after: int | None) -> str:
    """`, 1.2 MiB`, or `, 1.2 MiB -> 1.4 MiB (+16.7 %)`."""
    if before is None or after is None:
        return f", {size_in_words(before if after is None else after)}"  # type: ignore[arg-type]
    if before == after:
        return f", {size_in_words(after)} as before"
    share = f" ({(after - before) / before:+.1%})".replace("%", " %") if before else ""
    return f", {size_in_words(before)} -> {size_in_words(after)}{share}"


def _counts(files: Sequence[FileChange]) -> str:
    counts = Counter(str(change.kind) for change in files)
    return ", ".join(f"{counts[kind]} files {kind}" for kind in MARKS if counts[kind])
