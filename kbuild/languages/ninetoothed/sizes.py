"""What depends on the sizes of a call: the number of blocks, and whether 32 bits are enough."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from kbuild.languages.expression import (
    Expression,
    ExpressionError,
    any_of,
    first_of,
    parse,
    parse_condition,
)
from kbuild.languages.ninetoothed.facts import Facts, Part
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Constant, Launch, OpSpec, Source
from kbuild.languages.worker.ninetoothed.wide import FAR

_WORD = re.compile(
    r"(?P<query>size|stride)\((?P<tensor>\w+), (?P<axis>\d+)\)|(?P<name>[A-Za-z_]\w*)"
)


def wide_of(facts: Facts, sources: Mapping[str, Source]) -> Constant:
    """Whether any element is further from its tensor's first than 32 bits can say."""
    reasons = [
        parse_condition(text)
        for name, tensor in facts.tensors.items()
        if tensor.rank
        for text in _far(sources[name].name, [config.shapes[name] for config in facts.configs])
    ]
    return Constant(facts.wide, None, any_of(reasons), (False, True))


def _far(tensor: str, shapes: Sequence[Sequence[int | None]]) -> Iterator[str]:
    axes = range(len(shapes[0]))
    steps = (f"(size({tensor}, {axis}) - 1) * stride({tensor}, {axis})" for axis in axes)
    yield f"{' + '.join(steps)} >= {FAR}"
    if any(None in shape or math.prod(filter(None, shape)) >= FAR for shape in shapes):
        # An expanded tensor has more elements than memory; flattened, they are counted.
        yield f"numel({tensor}) >= {FAR}"
    if len(axes) > 1:  # an empty one may have more of everything else than 32 bits say
        for axis in axes:
            if any(shape[axis] is None for shape in shapes):
                yield f"size({tensor}, {axis}) >= {FAR}"


def fixed_of(
    op: OpSpec, launch: Launch, facts: Facts, sources: Mapping[str, Source], place: Place
) -> tuple[Constant, ...] | None:
    """The sizes that the code is made for, and the values of each; None after an error.

    They are a number in `shapes`, the `choices` of a constant of the section, or those that the
    dimension has in the cases that the op is tuned for.

    Args:
        op: its shapes name the dimensions.
        launch: as the section has it.
        facts: the kernel.
        sources: what the application's parameters are.
        place: of the launch, for errors.
    """
    errors, found, used = place.errors, list[Constant](), set[str]()
    for part in facts.parts:
        if part.kind not in ("fixed", "power"):
            continue
        size = _size(op, sources[part.tensor].name, part.axis)
        exact = parse(size)
        wanted = parse(f"next_pow2({size})") if part.kind == "power" else exact
        said = [one for one in launch.constants if one.expression in (wanted, exact)]
        used |= {one.name for one in said}
        if wanted.constant is not None:
            found.append(Constant(part.name, wanted.constant))
        elif values := tuple(dict.fromkeys(_values(op, said, exact, wanted))):
            found.append(Constant(part.name, expression=wanted, choices=values))
        else:
            message = f"`{facts.name}` is compiled for certain values of `{wanted}`"
            hint = f'{_word(size, part)} = {{ value = "{wanted}", choices = [...] }}'
            hint = f"write `constants = {{ {hint} }}`"
            place.at("constants").error(message, hint)
    for one in launch.constants:
        if one.name not in used:
            given = one.expression if one.expression is not None else one.value
            message = f"no size that `{facts.name}` is compiled for is `{given}`"
            place.at("constants", one.name).error(message, "remove it")
    return tuple(found) if place.errors == errors else None


def _size(op: OpSpec, tensor: str, axis: int) -> str:
    """How the section calls a dimension, or how it is asked for."""
    rule = op.shape(tensor)
    dim = rule.dims[axis] if rule is not None and rule.dims else None
    return str(dim) if dim is not None else f"size({tensor}, {axis})"


def _values(
    op: OpSpec, said: Sequence[Constant], exact: Expression, wanted: Expression
) -> Iterator[int]:
    """The values of `wanted` that the section says, or that follow from those of the size."""
    for one in sorted(said, key=lambda one: one.expression != wanted):
        sizes = [int(choice) for choice in one.choices]
        yield from sizes if one.expression == wanted else _powers(sizes)
        return
    cases = (dict(case).get(str(exact)) for case in op.tune.cases)
    sizes = [case for case in cases if isinstance(case, int)]
    yield from sizes if wanted == exact else _powers(sizes)


def _powers(sizes: Sequence[int]) -> Iterator[int]:
    return (1 << max(size - 1, 0).bit_length() for size in sizes)


def _word(size: str, part: Part) -> str:
    """A name for a constant; only one that is the dimension may have its name."""
    name = size if size.isidentifier() else f"size_{part.axis}"
    return f"{name}_power" if part.kind == "power" else name


def grid_of(facts: Facts, sources: Mapping[str, Source], place: Place) -> Expression | None:
    """The number of blocks: of each config, chosen by its constants where it differs."""
    texts: dict[str, list[str]] = {}
    for config in facts.configs:
        text = _WORD.sub(lambda match: _asked(match, sources), config.grid)
        numbers = [(n, v) for n, v in config.constants if isinstance(v, int)]
        condition = " and ".join(f"{name} == {int(value)}" for name, value in numbers)
        texts.setdefault(text, []).append(condition or "True")
    if len(texts) > 1 and sum(len(set(one)) for one in texts.values()) > len(
        set().union(*texts.values())
    ):
        hint = "have a whole number among the arguments of `premake` that differ"
        place.error(f"nothing that is a number says which grid of `{facts.name}` is meant", hint)
    try:
        return _chosen(texts)
    except ExpressionError as error:
        place.error(f"the grid of `{facts.name}` is `{facts.configs[0].grid}`: {error.message}")
        return None


def _chosen(texts: Mapping[str, list[str]]) -> Expression:
    *others, last = texts
    options = [
        (any_of([parse_condition(one) for one in dict.fromkeys(texts[text])]), parse(text))
        for text in others
    ]
    return first_of(options, parse(last)) if options else parse(last)


def _asked(match: re.Match[str], sources: Mapping[str, Source]) -> str:
    if match["query"]:
        return f"{match['query']}({sources[match['tensor']].name}, {match['axis']})"
    source = sources.get(match["name"])
    return f"({source})" if source is not None else match["name"]
