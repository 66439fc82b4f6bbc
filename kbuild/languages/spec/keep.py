"""Conditions that a launch's candidates must meet: `keep`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kbuild.config.suggest import one_of
from kbuild.languages.expression import Expression, ExpressionError
from kbuild.languages.expression.nodes import Name
from kbuild.languages.spec.candidates import option_problem
from kbuild.languages.spec.dialects import DIALECTS, Dialect
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.values import Candidate, Launch, OpSpec, numbers_of


def read_keep(
    texts: Sequence[str],
    candidates: Sequence[Candidate],
    dialect: Dialect,
    scope: Scope,
    place: Place,
) -> tuple[Expression, ...]:
    """The conditions; errors at `place`, the key.

    Args:
        texts: as they are written.
        candidates: those of the section; none when they are the kernel's own.
        dialect: whose options may be used by name, where every candidate sets them.
        scope: with the constants of the candidates.
        place: the `keep` key.
    """
    sets = [dict(candidate.options) for candidate in candidates]
    options = [name for name in dialect.options if all(name in one for one in sets)]
    new = [name for name in options if name not in scope.kinds]
    inner = scope.inside(new, place, is_open=scope.is_open)
    read = (inner.condition(text, place.at(index)) for index, text in enumerate(texts))
    return tuple(condition for condition in read if condition is not None)


def kept(
    candidates: Sequence[Candidate], keep: Sequence[Expression], place: Place
) -> tuple[Candidate, ...]:
    """The candidates that can meet the conditions; what depends on the call goes into `when`."""
    if not keep or not candidates:
        return tuple(candidates)
    found = tuple(_found(candidates, keep, place))
    if not found:
        place.error("no candidate meets the conditions", "loosen them")
    return found


def with_candidates(
    op: OpSpec, launch: Launch, own: Sequence[Candidate], place: Place, why: str = ""
) -> Launch | None:
    """A launch with `configs = "autotune"` once the kernel's own candidates are known.

    Args:
        op: the op of the launch.
        launch: returned as it is when the section lists its candidates.
        own: what the kernel brings.
        place: collects what is wrong; `Place(launch.path)`.
        why: it brings none, where something is known of that.

    Returns:
        The launch with the candidates that `keep` leaves; None after an error.
    """
    if not launch.autotune:
        return launch
    errors = place.errors
    where = place.at("configs")
    if not own:
        decorator = f"@{DIALECTS[op.language].name}.autotune"
        hint = why or f"decorate it with `{decorator}`, or list candidates in `configs`"
        where.error("the kernel brings no candidates", hint)
    for candidate in own:
        _judge_options(candidate, DIALECTS[op.language], where)
    candidates = kept(own, launch.keep, place.at("keep"))
    return replace(launch, candidates=candidates) if place.errors == errors else None


def _judge_options(candidate: Candidate, dialect: Dialect, place: Place) -> None:
    for name, value in candidate.options:
        if name not in dialect.options:
            hint = one_of(name, dialect.options)
            place.error(f"`{name}` is not an option that kbuild passes to `{dialect.name}`", hint)
        elif problem := option_problem(name, value):
            place.error(f"`{name}` of the kernel's own candidates {problem}")


def _found(
    candidates: Sequence[Candidate], keep: Sequence[Expression], place: Place
) -> Iterator[Candidate]:
    for candidate in candidates:
        pairs = (*candidate.constants, *candidate.options)
        known = numbers_of(pairs)
        when = candidate.when
        for index, condition in enumerate(keep):
            try:
                bound = condition.bind(known)
            except ExpressionError as error:
                place.at(index).error(f"`{condition}`: {error.message} (column {error.column})")
                return
            if bound.constant == 0:
                break
            _judge_names(bound, pairs, place.at(index))
            when = bound.and_also(when) if bound.constant is None else when
        else:
            yield replace(candidate, when=when)


def _judge_names(condition: Expression, pairs: Sequence[tuple[str, object]], place: Place) -> None:
    """What a candidate sets to a text or a fraction cannot be asked for."""
    words = dict(pairs)
    for leaf in condition.leaves():
        if isinstance(leaf, Name) and leaf.name in words:
            place.error(f"`{condition}`: `{leaf.name}` is not an integer (column {leaf.column})")
