"""From the entries of a file to rows: whose constants they are, and which candidate is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbuild.config.suggest import did_you_mean, listed
from kbuild.errors import UsageError
from kbuild.languages.expression import EvaluationError, Expression, ExpressionError, parse
from kbuild.languages.spec.values import Candidate, OpSpec, Scalar
from kbuild.languages.stale import written
from kbuild.languages.tables import Row
from kbuild.tune.imports.files import Entry, Imported

_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class Joined:
    """What becomes of a file."""

    rows: tuple[Row, ...]
    lacking: tuple[str, ...] = ()
    """Candidates that the op lacks, as `build.toml` would write them."""


def key_of(text: str | None, op: OpSpec) -> tuple[Expression, ...]:
    """What the op's key is made of in the file's names; the op's own expressions when not said.

    Raises:
        UsageError: it is no list of expressions, or one of another length.
    """
    if text is None:
        return op.key
    try:
        found = tuple(parse(part.strip()) for part in _COMMA.split(text) if part.strip())
    except ExpressionError as error:
        raise UsageError(f"--key: `{text}`: {error.message}", hint=error.hint) from error
    if len(found) != len(op.key):
        own = listed(str(one) for one in op.key) or "empty"
        raise UsageError(f"--key has {len(found)} parts, the key of `{op.name}` is {own}")
    return found


def names_of(op: OpSpec, launch: int) -> tuple[str, ...]:
    """The constants and options that a launch's candidates set.

    Raises:
        UsageError: its candidates are not known.
    """
    own = op.launches[launch]
    found = dict.fromkeys(
        name for one in own.candidates for name, _ in (*one.constants, *one.options)
    )
    if not found:
        words = f"the candidates of `{op.name}` are known only to the kernel, or have no constants"
        raise UsageError(words, hint="name a variant that was built with --keep-all: --variant DIR")
    return tuple(found)


def mapping_of(
    given: Sequence[str], entries: Sequence[Entry], names: Sequence[str]
) -> dict[str, str]:
    """The file's names -> the candidates' names; those that say nothing are left out.

    Names that differ in `_`, in capitals or in the word `SIZE` mean the same.

    Raises:
        UsageError: one of them means nothing here.
    """
    mapping = {}
    for one in given:
        old, equals, new = one.partition("=")
        if not equals or not old:
            raise UsageError(f"--map: `{one}` is not NAME=NAME", hint="e.g. BLOCK_SIZE_M=BLOCK_M")
        mapping[old] = new
    by_stem = {_stem(name): name for name in names}
    for name in dict.fromkeys(name for entry in entries for name in entry.config):
        if name in mapping:
            continue
        own = name if name in names else by_stem.get(_stem(name))
        if own is None:
            hint = did_you_mean(name, names) or f"candidates set {listed(names)}"
            raise UsageError(
                f"no candidate sets `{name}`", hint=f"{hint}; --map {name}= leaves it out"
            )
        mapping[name] = own
    unknown = [new for new in mapping.values() if new and new not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"candidates set {listed(names)}"
        raise UsageError(f"--map: no candidate sets `{unknown[0]}`", hint=hint)
    return {old: new for old, new in mapping.items() if new}


def join(  # noqa: PLR0917
    imported: Imported,
    op: OpSpec,
    launch: int,
    key: Sequence[Expression],
    mapping: Mapping[str, str],
    dtypes: Sequence[str] = (),
) -> Joined:
    """Rows for every entry whose candidate there is.

    Args:
        imported: what the file says.
        op: the op.
        launch: index into its launches.
        key: see `key_of`.
        mapping: see `mapping_of`.
        dtypes: only rows of ops' tensors with one of these; all when empty.

    Raises:
        UsageError: the key does not follow from the file.
    """
    candidates = op.launches[launch].candidates
    rows, lacking = [], []
    for entry in imported.entries:
        wanted = {mapping[name]: v for name, v in entry.config.items() if name in mapping}
        found = next((one for one in candidates if _means(one, wanted)), None)
        if found is None:
            lacking.append(written(tuple(wanted.items()), ()))
            continue
        numbers = _key(key, entry, imported.path)
        rows += list(_rows(op, launch, found, numbers, dtypes))
    return Joined(tuple(rows), tuple(dict.fromkeys(lacking)))


def _means(candidate: Candidate, wanted: Mapping[str, Scalar]) -> bool:
    own = dict((*candidate.constants, *candidate.options))
    return all(
        name in own
        and own[name] == value
        and isinstance(own[name], bool) == isinstance(value, bool)
        for name, value in wanted.items()
    )


def _key(key: Sequence[Expression], entry: Entry, path: str) -> tuple[int, ...]:
    try:
        return tuple(one.evaluate(entry.call) for one in key)
    except (KeyError, EvaluationError) as error:
        words = f"`{path}` does not say {error}, which the key needs"
        hint = f"it says {listed(entry.call)}; write the key in these: --key"
        raise UsageError(words, hint=hint) from error


def _rows(
    op: OpSpec, launch: int, candidate: Candidate, key: tuple[int, ...], dtypes: Sequence[str]
) -> Iterator[Row]:
    for some in op.dtype_sets():
        if dtypes and not set(dtypes) & set(some.values()):
            continue
        yield Row(
            op.kernel,
            op.name,
            launch,
            tuple(some.items()),
            key,
            candidate.constants,
            candidate.options,
            0.0,  # not measured by kbuild
            0.0,
        )


def _stem(name: str) -> str:
    return name.lower().replace("size", "").replace("_", "")
