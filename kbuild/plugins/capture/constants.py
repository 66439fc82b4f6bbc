"""Constants and options of a launch: what is compiled, and what becomes an argument."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.plugins.capture.conditions import Tree
from kbuild.plugins.capture.programs import CaptureError, Program, Step
from kbuild.plugins.capture.values import (
    CAPABILITIES,
    evaluated,
    function_of,
    is_literal,
    is_number,
    literal,
    names_of,
)

_MOST_VALUES = 1 << 20
"""Combinations of sizes that are tried to find the values of a constant."""
_MOST_CHOICES = 64
_MOST_COMBINATIONS = 64
"""Values of all constants of a launch; beyond that, those with the most values are arguments."""
_FEW_CHOICES = 5
"""Constants with fewer values stay constants."""
_MOST_CALLS = 1 << 16
"""Sizes for which the values of the constants are counted."""
_OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim",
    "kpack", "schedule_hint", "enable_fp_fusion", "launch_pdl", "launch_cooperative_grid",
    "occupancy", "opt_level", "num_worker_warps",
)  # fmt: skip


@dataclass
class ConstantWriter:
    """Writes the constants of the launches of one op."""

    program: Program
    tree: Tree
    refused: set[int]
    """Paths that no call may take."""
    bounds: Mapping[str, tuple[int, int]]
    arguments: Sequence[str]
    """Names of the op's arguments; a candidate cannot set a constant with such a name."""
    tensors: Sequence[str]
    """Arguments of the op that are tensors."""

    def constants(self, step: Step) -> tuple[dict[str, Any], Any, dict[str, str]]:
        """Split a launch's constants: the fixed ones, the candidates, those that become arguments.

        A constant with more values than images can be compiled for is an argument in its place.
        """
        open_: dict[str, str] = {}
        fixed: dict[str, Any] = {}
        varying: list[str] = []
        variants = step.variants
        for name in step.step["constants"]:
            values = {leaf: variant["constants"][name] for leaf, variant in variants.items()}
            distinct = {repr(value): value for value in values.values()}
            if all(value and "dtype" in value for value in values.values()):
                fixed[name] = {"dtype": self.dtype_constant(values)}
            elif len(distinct) == 1:
                value = next(iter(distinct.values()))
                try:
                    fixed[name] = self._fixed(value, step)
                except _TooManyValuesError:
                    ((_, open_[name]),) = value.items()
            elif all(is_literal(value) for value in values.values()):
                if name not in self.arguments:
                    varying.append(name)
                else:
                    fixed[name] = self._by_argument(name, values, step)
            else:
                text = self._conditional(name, values, step)
                try:
                    fixed[name] = self._chosen(text, step)
                except _TooManyValuesError:
                    open_[name] = text
        shapes = step.step.get("shapes", ())
        for name in sorted(open_.keys() & {*shapes}):
            message = f"has more values of `{name}` in `{step.step['launch']}` than there can be"
            why = "it is a constant" if step.step.get("arrays") else "the kernel has shapes of it"
            message = f"{message} images, and {why}: narrow the `sizes`"
            raise CaptureError(message, step.step["line"])
        self._limit(fixed, open_, shapes)
        if step.step["key"] is not None:  # each of the kernel's own candidates, for every path
            fixed |= self._coded(step, varying)
            varying = []
        return fixed, self._rows(step, varying), open_

    def _limit(self, fixed: dict[str, Any], open_: dict[str, str], shapes: Collection[str]) -> None:
        """Let constants be arguments while all together have too many values."""
        while self._combinations(fixed) > _MOST_COMBINATIONS:
            counts = {n: _plain_choices(value) for n, value in fixed.items() if n not in shapes}
            name = max(counts, key=lambda key: counts[key], default="")
            if not name or counts[name] < _FEW_CHOICES:
                break
            open_[name] = fixed.pop(name)["value"]

    def _coded(self, step: Step, names: Sequence[str]) -> dict[str, Any]:
        """Constants that depend on the path alone, by the number of their combination."""
        rows: dict[str, tuple[list[Any], set[int]]] = {}
        for leaf, variant in step.variants.items():
            row = [literal(variant["constants"][name]) for name in names]
            rows.setdefault(repr(row), (row, set()))[1].add(leaf)
        text = self._joined_by_path(
            {str(at): leaves for at, (_, leaves) in enumerate(rows.values())}, step
        )
        coded = {}
        for position, name in enumerate(names):
            values = {str(at): row[position] for at, (row, _) in enumerate(rows.values())}
            coded[name] = {"value": text, "choices": values}
        return coded

    def _combinations(self, constants: Mapping[str, Any]) -> int:
        """Number of combinations of values that the constants of a launch can have."""
        chosen = [
            value for value in constants.values() if isinstance(value, dict) and "choices" in value
        ]
        names = sorted({name for value in chosen for name in names_of(value["value"])})
        spans = [self._span(name) for name in names]
        # Too many calls to try: the product may count combinations that no call has.
        if math.prod(len(span) for span in spans) > _MOST_CALLS:
            return math.prod(len(value["choices"]) for value in chosen)
        calls = (dict(zip(names, values, strict=True)) for values in itertools.product(*spans))
        return len({tuple(evaluated(v["value"], call) for v in chosen) for call in calls})

    def _free(self, step: Step) -> set[int]:
        """Paths without a launch, and refused ones: a condition of it may be anything there."""
        return set(self.program.outputs) - step.leaves | self.refused

    def _rows(self, step: Step, varying: Sequence[str]) -> list[dict[str, Any]]:
        """The candidates of a launch: constants and options that depend on the path."""
        rows: dict[str, tuple[dict[str, Any], set[int]]] = {}
        for leaf, variant in step.variants.items():
            row = {name: literal(variant["constants"][name]) for name in varying}
            for option, value in variant["options"].items():
                if value is None:
                    continue
                if option not in _OPTIONS:
                    raise CaptureError(f"has the launch option `{option}`", step.step["line"])
                row[option] = literal(value)
            rows.setdefault(repr(row), (row, set()))[1].add(leaf)
        others = self._free(step)
        candidates = []
        for row, leaves in rows.values():
            # Also of the last: no tuned table may choose it for other calls.
            when = self.tree.condition(leaves, others)
            candidates.append({**row, **({"when": when} if when != "True" else {})})
        return candidates if any(candidates) else []

    def dtype_constant(self, values: Mapping[int, Any]) -> str:
        """A dtype, or the argument that has it.

        Raises:
            CaptureError: it is neither on all paths.
        """
        dtypes = {leaf: value["dtype"] for leaf, value in values.items()}
        configurations = {leaf: self.program.paths[leaf].configuration.dtypes for leaf in dtypes}
        rule = dtype_rule("", dtypes, configurations, self.tensors)
        if rule is None:
            raise CaptureError("a constant that is a dtype depends on the path")
        return rule

    def _fixed(self, value: Any, step: Step) -> Any:
        if is_literal(value):
            known = literal(value)
            return {"string": known} if value and "string" in value else known
        ((kind, text),) = value.items()
        if kind == "bool":
            return text
        if kind == "float":
            return self._single_float(text, step)
        return self._chosen(text, step)

    def _single_float(self, text: str, step: Step) -> float:
        """The only value of a number on the paths of a step."""
        # A float has one value on a path only if the author's Python compares it with that.
        equal = f"{text} == "
        paths = [self.program.paths[leaf] for leaf in step.leaves]
        numbers = {
            "".join(q.removeprefix(equal) for q, yes in path.answers if yes and q.startswith(equal))
            for path in paths
        }
        if len(numbers) != 1 or not is_number(number := numbers.pop()):
            raise _TooManyValuesError
        return float(number)

    def _conditional(self, name: str, values: Mapping[int, Any], step: Step) -> str:
        """A constant that is one expression on some paths and another on others."""
        groups: dict[str, set[int]] = {}
        for leaf, value in values.items():
            if value is None or next(iter(value)) not in ("int", "bool"):
                raise CaptureError(f"the constant `{name}` is of several kinds", step.step["line"])
            groups.setdefault(next(iter(value.values())), set()).add(leaf)
        return self._joined_by_path(groups, step)

    def _joined_by_path(self, groups: Mapping[str, set[int]], step: Step) -> str:
        """Combine expressions of different paths into one conditional expression."""
        others = self._free(step)
        text = ""
        for expression, leaves in groups.items():
            # The first expression becomes the last alternative, which needs no condition.
            if not text:
                text = expression
                continue
            condition = self.tree.condition(leaves, others)
            text = f"{expression} if {condition} else ({text})"
        return text

    def _by_argument(self, name: str, values: Mapping[int, Any], step: Step) -> Any:
        """A constant that an argument of the same name decides."""
        if all(value and "bool" in value for value in values.values()):
            leaves = {leaf for leaf, value in values.items() if literal(value)}
            return self.tree.condition(leaves, self._free(step))
        choices = sorted({literal(value) for value in values.values() if value and "int" in value})
        return {"value": self._conditional(name, values, step), "choices": choices}

    def _chosen(self, text: str, step: Step) -> dict[str, Any]:
        """An expression with all values that it has within the bounds."""
        choices: set[int] = set()
        conditions = [
            [
                question if answer else f"not ({question})"
                for question, answer in self.program.paths[leaf].answers
            ]
            for leaf in step.leaves
        ]
        names = sorted(names_of(text))
        spans = [self._span(name, conditions) for name in names]
        if math.prod(len(span) for span in spans) > _MOST_VALUES:
            # Powers of two, where the expression can be nothing else.
            if re.fullmatch(r"next_pow2\([^()]*(\([^()]*\)[^()]*)*\)", text):
                # A block of Triton has at most 2**20 elements.
                return {"value": text, "choices": [1 << at for at in range(21)]}
            raise _TooManyValuesError
        # Conditions on other names are left out, which can only add choices.
        decidable = [[c for c in condition if names_of(c) <= {*names}] for condition in conditions]
        value = function_of(text, names)
        holds = [[function_of(c, names) for c in condition] for condition in decidable]
        for values in itertools.product(*spans):
            if any(all(_holds(c, values) for c in condition) for condition in holds):
                choices.add(int(value(*values)))
                if len(choices) > _MOST_CHOICES:
                    raise _TooManyValuesError
        return {"value": text, "choices": sorted(choices)}

    def _span(self, name: str, conditions: Sequence[Sequence[str]] = ()) -> Sequence[int]:
        """The values of a size on the paths with these conditions."""
        known = {"capability()": CAPABILITIES, **self.bounds}
        least, most = known.get(name, (0, 2**31 - 1))
        equalities = [
            {int(c.partition(" == ")[2]) for c in condition if re.fullmatch(rf"{name} == -?\d+", c)}
            for condition in conditions
        ]
        if equalities and all(equalities):
            return sorted(set().union(*equalities))
        # A kernel has nothing to do for a size of 0, and its image may not even compile.
        return range(max(least, min(1, most)), most + 1)


def dtype_rule(
    name: str,
    values: Mapping[int, str | None],
    configurations: Mapping[int, Mapping[str, str]],
    inputs: Sequence[str],
) -> str | None:
    """A dtype on all paths, or one of the inputs that has it on all; None for neither.

    A tensor is not its own rule; `configurations` has the dtypes of the arguments by path.
    """
    for other in inputs:
        if other != name and all(
            configurations[leaf].get(other) == value
            for leaf, value in values.items()
            if value is not None
        ):
            # An argument with a single dtype says no more than that dtype.
            kinds = {dtypes[other] for dtypes in configurations.values() if other in dtypes}
            if len(kinds) > 1:
                return other
    kinds = {value for value in values.values() if value is not None}
    return kinds.pop() if len(kinds) == 1 else None


class _TooManyValuesError(Exception):
    """A constant that images cannot be compiled for each value of."""


def _holds(condition: Callable[..., Any], values: Sequence[int]) -> bool:
    try:
        return bool(condition(*values))
    except ArithmeticError:
        return False


def _plain_choices(value: Any) -> int:
    """Number of values of a constant that can become an argument; 0 for a block size."""
    choices = value.get("choices", ()) if isinstance(value, dict) else ()
    is_block = all(choice & (choice - 1) == 0 for choice in choices)
    return 0 if is_block else len(choices)
