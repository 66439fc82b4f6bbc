"""Walks all paths of a wrapper within the sizes that its author declares.

Each run follows one path, see `trace`. Negating one of its conditions and looking for sizes
under which the rest holds gives the next run, until no condition is left.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch

from kbuild.plugins.capture.conditions import question_of
from kbuild.plugins.capture.programs import PATH_WALKED, CaptureError
from kbuild.plugins.capture.values import BATCH, GPUS, ROWS, evaluated, names_of
from kbuild.plugins.capture.worker.runs import (
    Bounds,
    NeedsContiguous,
    NeedsGradients,
    TensorArgument,
    Trace,
    WrapperCall,
)
from kbuild.plugins.capture.worker.trace import traced

MOST_PATHS = 128
"""Largest number of paths of one function with one choice of dtypes and options."""
_MOST_EXHAUSTIVE = 1 << 17
"""Largest number of values of one size that are all tried."""
_MOST_REPAIRS, _MOST_OPTIONS = 40, 16
"""Changes of one name in a search, and values that are compared for each change."""
_EXAMPLES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 64, 100, 127, 128, 256, 512, 1000, 1024)

Values = Mapping[str, int | float]


@dataclass
class Paths:
    """Result of a search for all paths of a function."""

    traces: list[Trace] = field(default_factory=list)
    unproven: list[list[str]] = field(default_factory=list)
    """Prefixes of conditions that no tried call meets, where not all values were tried."""
    dropped: int = 0
    """Paths that were not followed because there were too many."""


def walk(call: WrapperCall, initial: Values) -> Paths:
    """Every path of a function, beginning with the hints `initial`, which all symbols have.

    Raises:
        CaptureError: a path cannot be captured.
    """
    while True:
        try:
            return _walked(call, initial)
        except NeedsContiguous as needs:
            # From the beginning, since earlier paths are of other strides.
            call.contiguous.add(str(needs))
        except NeedsGradients:
            call.differentiated = True


def _walked(call: WrapperCall, initial: Values) -> Paths:
    paths = Paths()
    search = Search(call.bounds)
    work = [_Branch(initial, {})]
    seen: set[tuple[Any, ...]] = set()
    while work:
        branch = work.pop()
        if len(paths.traces) >= MOST_PATHS:
            paths.dropped += 1
            continue
        try:
            trace = traced(call, branch.hints, branch.decisions)
        except CaptureError:
            # Nothing traces into an op: it may do what the author does outside of torch.compile.
            if branch.decisions.get("asked_is_compiling"):
                continue
            raise
        identity = (tuple(trace.guards), tuple(sorted(trace.decisions.items())))
        # Two branches may lead to one path.
        if identity in seen:
            continue
        seen.add(identity)
        paths.traces.append(trace)
        questions = list(trace.decisions)
        for at in range(branch.asked, len(questions)):
            answers = {name: trace.decisions[name] for name in questions[:at]}
            answers[questions[at]] = not trace.decisions[questions[at]]
            work.append(replace(branch, decisions=answers, asked=at + 1))
        # This completes `trace.guards` as well, so the path is identified above.
        guards = branch.guards(trace)
        print(f"{PATH_WALKED}{described(call, trace)}", flush=True)  # noqa: T201 - kbuild reads it
        # The run that this one branches off has looked for the other sides of those before.
        start = len(branch.before) + bool(branch.negated)
        for at in range(start, len(guards)):
            conditions = [*(text for text, _ in guards[:at]), f"not ({guards[at][0]})"]
            values = search.values(conditions, trace.hints)
            if values is not None:
                asked = len(questions)
                work.append(_Branch(values, trace.decisions, asked, guards[:at], guards[at][0]))
            elif not search.was_exhaustive:
                paths.unproven.append(conditions)
    return paths


def run_once() -> None:
    """Run a function of kbuild, so that no fork has to do what the first run of a process does.

    Torch and sympy import modules with the first symbol and the first quotient, and all modules
    are searched for names to replace.
    """

    def halved(x: torch.Tensor) -> torch.Tensor:
        return torch.empty((x.shape[0] // 2 + 1,), dtype=x.dtype, device=x.device)

    argument = TensorArgument("x", ["n"], "float32")
    traced(WrapperCall(halved, [("x", argument)], {}, [], backward=False), {"n": 3}, {})
    sympy.simplify(sympy.Symbol("n"))


def described(call: WrapperCall, trace: Trace) -> str:
    """A path in one line: tensors and options of the call, conditions, and an error that ends it.

    `x float16[M, N]: N <= 1024, not flag`.
    """
    arguments = []
    for name, value in call.arguments:
        if isinstance(value, TensorArgument):
            arguments.append(f"{name} {value.dtype}[{', '.join(map(str, value.sizes))}]")
        elif not isinstance(value, list):
            arguments.append(f"{name} {value!r}")
    decisions = (name if answer else f"not {name}" for name, answer in trace.decisions.items())
    end = [f"raises {trace.raises}"] if trace.raises else []
    conditions = ", ".join((*trace.guards, *decisions, *end))
    text = ": ".join(filter(None, (", ".join(arguments), conditions)))
    return " ".join(text.split())  # errors may have several lines


@dataclass(frozen=True)
class _Branch:
    """A run to make: conditions that hold as in an earlier run, then one that does not hold."""

    hints: Values
    decisions: Mapping[str, bool]
    asked: int = 0
    """Number of decisions whose other answer has a branch of its own."""
    before: Sequence[tuple[str, bool]] = ()
    """Conditions before that one, each with True if the run itself decides on it."""
    negated: str = ""
    """The condition that does not hold."""

    def guards(self, trace: Trace) -> list[tuple[str, bool]]:
        """The conditions of the run, completed in the trace as well.

        `int(size)` decides on `size == 3` in one run and on `size == 4` in another: the latter does
        not imply for readers of both that the former is no longer possible.
        """
        own = sum(is_own for _, is_own in self.before)
        guards = [*self.before]
        following = trace.guards[own : own + 1]
        # Both may compare the same number, with different single values.
        is_one_of_many = (
            self.negated
            and following
            and " == " in following[0]
            and question_of(following[0])[0] != question_of(self.negated)[0]
        )
        if is_one_of_many:
            guards.append((f"not ({self.negated})", False))
        guards += [(text, True) for text in trace.guards[own:]]
        if trace.boundary:
            places = [at for at, (_, is_own) in enumerate(guards) if is_own]
            forward = trace.boundary["guards"]
            trace.boundary["guards"] = places[forward - 1] + 1 if forward else 0
        trace.guards = [text for text, _ in guards]
        return guards


@dataclass
class Search:
    """Looks for values of a call that meet conditions."""

    bounds: Mapping[str, Bounds]
    was_exhaustive: bool = False

    def values(self, conditions: Sequence[str], near: Values) -> Values | None:
        """Values that meet all conditions; None where none were found.

        The last condition is the one that `near` does not meet.
        """
        # The product of the dimensions of `...` has no value itself.
        product = " * ".join(name for name in BATCH if name in near)
        conditions = [re.sub(rf"\b{ROWS}\b", f"({product})", text) for text in conditions]
        names = sorted(names_of(conditions[-1]) & near.keys())
        self.was_exhaustive = False
        for candidate in self._candidates(names, conditions, near):
            complete = {**near, **candidate}
            if self._holds(conditions, complete):
                return complete
        if len(names) == 1 and (every := self._every_value(names[0], conditions, near)):
            for value in every:
                complete = {**near, names[0]: value}
                if self._holds([conditions[-1]], complete) and self._holds(conditions, complete):
                    return complete
            self.was_exhaustive = all(names_of(c) <= set(names) for c in conditions)
        return None if self.was_exhaustive else self._repaired(conditions, near)

    def _every_value(
        self, name: str, conditions: Sequence[str], near: Values
    ) -> Sequence[int] | None:
        """Values of a name to try one by one, of one period if conditions repeat; None if many."""
        if not isinstance(near[name], int):
            return None
        bounds = self.bounds.get(name, Bounds())
        if name == "capability()" and bounds.least < bounds.most:
            return None  # there are few
        period = period_of(name, conditions)
        most = min(bounds.most, bounds.least + period - 1) if period else bounds.most
        return range(bounds.least, most + 1) if most - bounds.least <= _MOST_EXHAUSTIVE else None

    def _repaired(self, conditions: Sequence[str], near: Values) -> Values | None:
        """Change one name of a condition that does not hold, and again, until all hold."""
        # A fixed seed, so that the next capture finds the same paths.
        values, generator = dict(near), random.Random(0)  # noqa: S311 - a search, not a secret
        numbers = sorted({n for c in conditions for n in numbers_of(c)})
        for _ in range(_MOST_REPAIRS):
            broken = [c for c in conditions if not self._holds([c], values)]
            if not broken:
                return values
            condition = generator.choice(broken)
            names = sorted(names_of(condition) & near.keys())
            if not names:
                return None
            name = generator.choice(names)
            options = [
                {**values, name: value}
                for value in self._of(name, numbers, [condition], values)
                if self._holds([condition], {**values, name: value})
            ]
            few = generator.sample(options, min(len(options), _MOST_OPTIONS))
            values = min(few, key=lambda v: self._broken(conditions, v), default=values)
        return None

    def _broken(self, conditions: Sequence[str], values: Values) -> int:
        """Number of conditions that do not hold."""
        return sum(not self._holds([condition], values) for condition in conditions)

    def _holds(self, conditions: Sequence[str], values: Values) -> bool:
        try:
            # The last one first: it is the one that most candidates do not meet.
            return all(evaluated(condition, values) for condition in reversed(conditions))
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    def _candidates(
        self, names: Sequence[str], conditions: Sequence[str], near: Values
    ) -> Iterator[dict[str, int | float]]:
        """Values at the borders of the conditions, one name at a time, then together."""
        numbers = sorted({n for c in conditions for n in numbers_of(c)})
        single = {name: list(self._of(name, numbers, conditions, near)) for name in names}
        for name in names:
            yield from ({name: value} for value in single[name])
        for first, second in itertools.combinations(names, 2):
            # At most 1,600 pairs for each two names.
            for a, b in itertools.product(single[first][:40], single[second][:40]):
                yield {first: a, second: b}

    def _of(
        self, name: str, numbers: Sequence[int | float], conditions: Sequence[str], near: Values
    ) -> Iterator[int | float]:
        if isinstance(near[name], float):
            yield from _floats(numbers)
            return
        bounds = self.bounds.get(name, Bounds())
        others = [int(v) for k, v in near.items() if isinstance(v, int) and k != name]
        integers = [int(n) for n in numbers if n == int(n)]
        tried: dict[int, None] = {}
        for value in (*integers, *others, *_EXAMPLES, *sides(name, conditions, near)):
            # Conditions change beside a number, or beside its double or half, as in `2 * N <= 64`.
            for other in (value, value + 1, value - 1, value * 2, value // 2, value // 2 + 1):
                tried.setdefault(other)
        for base in integers[:6]:
            for other in (*others[:6], *integers[:6]):
                tried.setdefault(base + other)
                tried.setdefault(base - other)
                tried.setdefault(base * other)
                if other:
                    tried.setdefault(base // other)
                    tried.setdefault(base // other + 1)
        tried |= dict.fromkeys(1 << at for at in range(25))
        if bounds.least < 0:
            tried |= dict.fromkeys(-value for value in [*tried])
        for value in GPUS if name == "capability()" else (bounds.least, bounds.most, *tried):
            if bounds.least <= value <= bounds.most:
                yield value


def _floats(numbers: Sequence[int | float]) -> Iterator[float]:
    both = [value for number in (*numbers, 0.0, 1.0) for value in (number, -number)]
    yield from dict.fromkeys(float(value + step) for value in both for step in (0, 0.5, -0.5, 1))


def sides(name: str, conditions: Sequence[str], near: Values) -> Iterator[int]:
    """Values of a name at which the last condition, a comparison with it, changes its outcome."""
    for node in ast.walk(ast.parse(conditions[-1], mode="eval")):
        if isinstance(node, ast.Compare):
            for side, other in (
                (node.left, node.comparators[0]), (node.comparators[0], node.left)
            ):  # fmt: skip
                if ast.unparse(side) == name:
                    try:
                        yield int(evaluated(ast.unparse(other), near))
                    except (ArithmeticError, ValueError, KeyError, TypeError):
                        continue


def period_of(name: str, conditions: Sequence[str]) -> int:
    """Period with which conditions repeat in a name used only as `name % number`; else 0."""
    period = 1
    for condition in conditions:
        nodes = list(ast.walk(ast.parse(condition, mode="eval")))
        divisors = [
            int(node.right.value)
            for node in nodes
            if isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Mod)
            and ast.unparse(node.left) == name
            and isinstance(node.right, ast.Constant)
            and isinstance(node.right.value, int)
        ]
        places = [node for node in nodes if isinstance(node, ast.expr)]
        if len(divisors) != sum(ast.unparse(node) == name for node in places):
            return 0
        period = math.lcm(period, *divisors)
    return period


def numbers_of(text: str) -> set[int | float]:
    """The numbers that an expression contains."""
    return {
        node.value
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, (int, float))
        and not isinstance(node.value, bool)
    }
