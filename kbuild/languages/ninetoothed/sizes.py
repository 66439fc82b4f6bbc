"""What depends on the sizes of a call: the number of blocks, and whether 32 bits are enough."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kbuild.languages.expression import Expression, ExpressionError, parse, parse_condition
from kbuild.languages.ninetoothed.facts import Facts
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.values import Constant, Source

_FAR = 2**31 - 2**20
"""The first offset that a kernel may not reach with 32 bits: a block has at most 2**20 elements."""
_WORD = re.compile(
    r"(?P<query>size|stride)\((?P<tensor>\w+), (?P<axis>\d+)\)|(?P<name>[A-Za-z_]\w*)"
)


def wide_of(facts: Facts, sources: Mapping[str, Source]) -> Constant:
    """Whether any element is further from its tensor's first than 32 bits can say."""
    texts = [
        text
        for name, tensor in facts.tensors.items()
        if tensor.rank
        for text in _far(sources[name].name, [config.shapes[name] for config in facts.configs])
    ]
    return Constant(facts.wide, None, parse_condition(" or ".join(texts)), (False, True))


def _far(tensor: str, shapes: Sequence[Sequence[int | None]]) -> Iterator[str]:
    axes = range(len(shapes[0]))
    steps = (f"(size({tensor}, {axis}) - 1) * stride({tensor}, {axis})" for axis in axes)
    yield f"{' + '.join(steps)} >= {_FAR}"
    if any(size is None for shape in shapes for size in shape):
        # An expanded tensor has more elements than memory; flattened, they are counted.
        yield f"numel({tensor}) >= {_FAR}"


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
        return parse(_chosen(texts))
    except ExpressionError as error:
        place.error(f"the grid of `{facts.name}` is `{facts.configs[0].grid}`: {error.message}")
        return None


def _chosen(texts: Mapping[str, list[str]]) -> str:
    *others, last = texts
    chain = f"({last})"
    for text in reversed(others):
        conditions = " or ".join(dict.fromkeys(f"({one})" for one in texts[text]))
        chain = f"({text}) if {conditions} else {chain}"
    return chain


def _asked(match: re.Match[str], sources: Mapping[str, Source]) -> str:
    if match["query"]:
        return f"{match['query']}({sources[match['tensor']].name}, {match['axis']})"
    source = sources.get(match["name"])
    return f"({source})" if source is not None else match["name"]
