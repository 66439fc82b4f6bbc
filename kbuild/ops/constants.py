"""Reads the constants that no candidate sets: fixed ones, and those that each call decides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import Expression
from kbuild.ops.expression.nodes import (
    Compare,
    Conditional,
    Match,
    Name,
    Node,
    Number,
    Query,
    leaves,
    transform,
)
from kbuild.ops.scope import NameKind, OpScope
from kbuild.ops.steps import Constant, DtypeName, Scalar, Value
from kbuild.project.config.issue import IssueCollector, one_of

_NON_INTEGER_KINDS = ("str", "dtype", "float")
"""Kinds of arguments that are not integers but can be compared."""

_CHOICES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "strings"),
    "dtype": ((str,), "dtypes"),
    "float": ((int, float), "numbers"),
}
"""Kind of argument -> types of its choices, and their name in messages; others have integers."""
_CONSTANT_KEYS = ("value", "choices", "none", "string", "dtype")
_HINT = 'e.g. `{ value = "next_pow2(N)", choices = [1024, 2048] }` or `{ string = "gelu" }`'
NONE = "None"
"""Value of a constant that is None; `{ string = "None" }` is the text."""


def read_constants(
    table: Mapping[str, Any], scope: OpScope, place: IssueCollector
) -> tuple[Constant, ...]:
    """Read the constants of a launch; errors are added to `place`, the table.

    Each may use constants of candidates, which are in `scope`, and constants before it.
    """
    constants: list[Constant] = []
    for outer, whole in table.items():
        for name, value, where in _items(outer, whole, place.at(outer)):
            constant = _ConstantReader(name, constants, scope, where).read(value)
            if constant is not None:
                constants.append(constant)
                scope = scope.knowing(name, "constant" if is_number(constant) else "word")
    return tuple(constants)


def is_number(constant: Constant) -> bool:
    """True if expressions may use the constant."""
    if constant.expression is not None:
        return not constant.values
    return constant.is_fixed and isinstance(constant.value, int)


def _items(
    name: str, value: Any, place: IssueCollector
) -> Iterator[tuple[str, Any, IssueCollector]]:
    """Yield the constant; of a tuple, each item as `name.0`, `name.1`."""
    if not isinstance(value, (list, tuple)):
        yield name, value, place
        return
    if not value:
        place.error("is an empty tuple", "omit it if it has a default")
    for index, item in enumerate(value):
        where = place.at(index)
        if isinstance(item, (list, tuple)) or (isinstance(item, dict) and "choices" in item):
            where.error("must be a number, a boolean, None or a dtype")
        else:
            yield f"{name}.{index}", item, where


def value_of(written: Any) -> Any:
    """Value of a constant in TOML: `"None"` is None."""
    if written in (NONE, {"none": True}):
        return None
    is_text = isinstance(written, dict) and isinstance(written.get("string"), str)
    return written["string"] if is_text and len(written) == 1 else written


def is_value(value: Any) -> bool:
    """True for a value that a candidate may give a constant."""
    return value is None or is_scalar(value)


def is_scalar(value: Any) -> bool:
    """True for a scalar with exact equality, which excludes `nan` and `inf`."""
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, (int, str))


@dataclass(frozen=True)
class _ConstantReader:
    """Reads one constant."""

    name: str
    before: Sequence[Constant]
    scope: OpScope
    place: IssueCollector

    def read(self, value: Any) -> Constant | None:  # noqa: PLR0911
        if value_of(value) is None:
            return Constant(self.name)
        if isinstance(value, str):
            return self._expression(value, ())
        if not isinstance(value, dict):
            if not is_scalar(value):
                self.place.error("must be a finite number")
            return Constant(self.name, value)
        unknown = sorted(value.keys() - set(_CONSTANT_KEYS))
        if unknown:
            self.place.at(unknown[0]).error("unknown key", one_of(unknown[0], _CONSTANT_KEYS))
            return None
        if "dtype" in value:
            return self._dtype(value)
        if isinstance(value.get("string"), str) and len(value) == 1:
            return Constant(self.name, value["string"])
        return self._chosen(value)

    def _chosen(self, table: Mapping[str, Any]) -> Constant | None:  # noqa: PLR0911
        """Read an expression or argument, with the values to compile for."""
        text, choices, none = table.get("value"), table.get("choices", []), table.get("none", False)
        if not isinstance(text, (str, int)) or not isinstance(choices, (list, dict)):
            self.place.error("is neither an expression with choices nor a string", _HINT)
            return None
        if not isinstance(none, bool):
            self.place.at("none").error("must be a boolean")
        if none is True and text not in self.scope.optional:
            message = f"`{text}` is not an argument that may be None"
            self.place.at("none").error(message, "leave `none` out")
            return None
        kind = self.scope.kinds.get(text) if isinstance(text, str) else None
        if isinstance(choices, dict):
            cases = {key: self._value(key, choice) for key, choice in choices.items()}
            return self._coded(str(text), cases, kind, none=none)
        if kind in _NON_INTEGER_KINDS or none is True:
            types, what = _CHOICES.get(str(kind), ((int,), "integers"))
            wrong = (not isinstance(v, types) or not is_scalar(v) for v in choices)
            # `bool` is a subclass of `int`, and integers are choices for a float.
            has_booleans = kind == "float" and any(isinstance(v, bool) for v in choices)
            if any(wrong) or has_booleans or len(set(map(str, choices))) < len(choices):
                message = f"must list different {what}"
                hint = "`none = true` adds None" if NONE in choices else f"`{text}` is one of them"
                self.place.at("choices").error(message, hint)
                return None
            cases = {str(v): DtypeName(v) if kind == "dtype" else v for v in choices}
            return self._coded(str(text), cases, kind, none=none)
        is_whole = all(isinstance(item, int) for item in choices)
        # By type too: True equals 1, but is compiled differently.
        if not is_whole or len({(type(item), item) for item in choices}) < len(choices):
            self.place.error("is neither an expression with choices nor a string", _HINT)
            return None
        return self._expression(text, tuple(choices))

    def _value(self, key: str, value: Any) -> Value:
        """Value for a key of a table of choices."""
        value = value_of(value)
        if value is None:
            return None
        if isinstance(value, dict) and value.keys() == {"dtype"}:
            dtype = value["dtype"]
            if isinstance(dtype, str) and dtype in DTYPES:
                return DtypeName(dtype)
        if not is_scalar(value):
            hint = 'e.g. `1`, `"gelu"`, `{ dtype = "float16" }`, `{ none = true }`'
            self.place.at("choices", key).error("is not a value of a constant", hint)
        return value  # type: ignore[no-any-return]

    def _coded(
        self, text: str, cases: Mapping[str, Value], kind: NameKind | None, *, none: bool
    ) -> Constant | None:
        """Constant that is looked up in `cases` by the position of the call's value."""
        subject = Name(text) if kind in _NON_INTEGER_KINDS else None
        subject_node = None if subject else self._subject(text, kind, none=none)
        if subject is None and subject_node is None:
            return None
        tests = [self._test(key, subject or subject_node, kind, text) for key in cases]
        if not cases or None in tests:
            if not cases:
                self.place.at("choices").error("lists no values", _HINT)
            return None
        # A position that no case has: a call with another value finds no image.
        root: Node = Number(-1)
        # Built from the last case on, so that the first case is tested first.
        for at, test in reversed([*enumerate(tests)]):
            root = Conditional(test, Number(at), root)  # type: ignore[arg-type]
        known = [self._known(test, subject_node) for test in tests]
        values = [*cases.values()]
        if none:
            root = Conditional(Query("has", text), root, Number(len(values)))
            known = [((Query("has", text), 1), *pair) for pair in known]
            known.append(((Query("has", text), 0),))
            values.append(None)
        expression, choices = Expression(text, root), tuple(range(len(values)))
        return Constant(self.name, None, expression, choices, tuple(values), tuple(known))

    def _subject(self, text: str, kind: NameKind | None, *, none: bool) -> Node | None:
        if kind == "floats" or kind in ("tensor", "result", "temporary", "view"):
            self.place.at("value").error(f"`{text}` is not a value that can be chosen by", _HINT)
            return None
        scope = self.scope.where_given({text}) if none else self.scope
        expression = scope.expression(text, self.place)
        return None if expression is None else expression.root

    def _test(
        self, key: str, subject: Node | None, kind: NameKind | None, text: str
    ) -> Node | None:
        """Condition that the subject equals a key of `choices`."""
        place = self.place.at("choices")
        if kind in ("str", "dtype") and subject is not None:
            if kind == "dtype" and key not in DTYPES:
                place.error(f"`{key}` is not a dtype", one_of(key, DTYPES))
                return None
            return Match(text, key)
        try:
            if kind == "float":
                return Match(text, float(key))
            truth_values = {"true": 1, "True": 1, "false": 0, "False": 0}
            value = truth_values[key] if key in truth_values else int(key)
        except ValueError:
            what = "a float" if kind == "float" else "an integer, `true` or `false`"
            place.error(f"`{key}` is not {what}", f"`{text}` is one")
            return None
        return None if subject is None else Compare("==", subject, Number(value))

    def _known(self, test: Node | None, whole: Node | None) -> tuple[tuple[Node, int], ...]:
        if isinstance(test, Compare) and isinstance(test.right, Number) and whole is not None:
            return ((whole, test.right.value),)
        return ((test, 1),) if test is not None else ()

    def _dtype(self, table: Mapping[str, Any]) -> Constant | None:
        """Read a dtype, or the dtype of a tensor or an argument."""
        word, scope = table["dtype"], self.scope
        known = (*scope.tensors(), *(name for name, kind in scope.kinds.items() if kind == "dtype"))
        if len(table) == 1 and word in known:
            return Constant(self.name, dtype_of=word)
        if len(table) == 1 and str(word) in DTYPES:
            return Constant(self.name, dtype=word)
        hint = one_of(str(word), (*known, *DTYPES)) if len(table) == 1 else "keep it alone"
        self.place.at("dtype").error(f"`{word}` is neither a tensor nor a dtype", hint)
        return None

    def _expression(self, text: str | int, choices: tuple[Scalar, ...]) -> Constant | None:
        kind = self.scope.kinds.get(text) if isinstance(text, str) else None
        if kind not in _NON_INTEGER_KINDS:
            expression = self.scope.expression(text, self.place)
            if expression is None:
                return None
            value = expression.constant
            if value is not None:
                return Constant(self.name, bool(value) if expression.is_condition else value)
            if choices or self._follows(expression):
                return Constant(self.name, None, expression, choices)
            if self.scope.is_condition(expression):
                return Constant(self.name, None, expression, (False, True))
        message = f"`{text}` differs from call to call, so the values to compile for must be listed"
        hint = f'write `{self.name} = {{ value = "{text}", choices = [ ... ] }}`'
        self.place.error(message, hint)
        return None

    def _follows(self, expression: Expression) -> bool:
        """True if other constants determine its value."""
        scope = self.scope
        parts = {c.expression.root for c in self.before if c.expression is not None}
        parts |= {node for c in self.before for pairs in c.known for node, _ in pairs}

        def known(node: Node) -> Node | None:
            if node in parts:
                # Any number will do: all that counts is which names are left.
                return Number(0)
            if isinstance(node, Name) and node.name in scope.let:
                return scope.let[node.name].mapped(known).root
            return None

        asked = leaves(transform(expression.root, known))
        names = (leaf.tensor if isinstance(leaf, Query) else leaf.name for leaf in asked)
        kinds = (scope.kinds.get(name) for name in names)
        return all(kind == "constant" or (kind is None and scope.is_open) for kind in kinds)
