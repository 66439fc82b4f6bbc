"""Decision trees over the conditions of paths, and expressions for sets of their leaves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Condition: TypeAlias = "tuple[Any, ...]"
"""`("is", question)`, `("and", ...)`, `("or", ...)`, `TRUE` or `FALSE`."""
TRUE: Condition = ("true",)
FALSE: Condition = ("false",)
_OPPOSITES = {" >= ": " < ", " > ": " <= ", " != ": " == "}
_PART = re.compile(r"\w+|[^\w\s]")
_MOST_PARTS = 250
"""Tokens of a requirement; an expression of `build.toml` has at most 300."""
_NEGATED = _OPPOSITES | {opposite: sign for sign, opposite in _OPPOSITES.items()}


def question_of(condition: str) -> tuple[str, bool]:
    """A condition as a question and its answer: `N >= 8` is `N < 8`, answered with no."""
    if condition.startswith("not (") and condition.endswith(")"):
        question, answer = question_of(condition[5:-1])
        return question, not answer
    if " and " in condition or " or " in condition:
        return condition, True
    for sign, opposite in _OPPOSITES.items():
        # A chain of comparisons, `0 < N < 8`, has no opposite of this form.
        if condition.count(sign) == 1:
            return condition.replace(sign, opposite), False
    return condition, True


def negation(question: str) -> str:
    """The opposite of a question, as an expression."""
    if question.startswith("not ") and " " not in question[4:]:
        return question[4:]
    if " and " not in question and " or " not in question:
        for sign, opposite in _NEGATED.items():
            if question.count(sign) == 1:
                return question.replace(sign, opposite)
    return f"not ({question})" if " " in question else f"not {question}"


@dataclass(frozen=True)
class Tree:
    """A question with what follows from either answer, or a leaf."""

    question: str = ""
    yes: Tree | None = None
    no: Tree | None = None
    leaf: int | None = None
    """The path; None where no path is known."""

    def condition(self, leaves: Collection[int], ignored: Collection[int] = ()) -> str:
        """An expression that holds for calls on some leaves.

        It may be anything for calls on ignored leaves.

        Returns:
            `True` and `False` where it always or never holds.
        """
        return _text(self.formula(leaves, ignored) or FALSE)

    def requirements(self, leaves: Collection[int]) -> list[str]:
        """Expressions that all hold for calls on some leaves; each is short enough to be read."""
        text = self.condition(leaves)
        if text == "True":
            return []
        if len(_PART.findall(text)) <= _MOST_PARTS or self.yes is None or self.no is None:
            return [text]
        yes, no = (side.formula(leaves, ()) for side in (self.yes, self.no))
        if yes == no or no is None:
            return self.yes.requirements(leaves)
        if yes is None:
            return self.no.requirements(leaves)
        sides = ((negation(self.question), self.yes), (self.question, self.no))
        return [
            other if part == "False" else f"{other} or {part}"
            for other, side in sides
            for part in side.requirements(leaves)
        ]

    def formula(self, leaves: Collection[int], ignored: Collection[int]) -> Condition | None:
        """The condition of some leaves as a `Condition`; None if it may be anything."""
        if self.yes is None or self.no is None:
            if self.leaf in leaves:
                return TRUE
            return None if self.leaf is None or self.leaf in ignored else FALSE
        yes = self.yes.formula(leaves, ignored)
        no = self.no.formula(leaves, ignored)
        # A side that may be anything takes the condition of the other one.
        if yes == no or no is None:
            return yes
        if yes is None:
            return no
        here: Condition = ("is", self.question)
        there: Condition = ("is", negation(self.question))
        return _joined("or", [_joined("and", [here, yes]), _joined("and", [there, no])])


def _joined(word: str, parts: Sequence[Condition]) -> Condition:
    """`and` or `or` of conditions, without what others imply."""
    neutral, final = (TRUE, FALSE) if word == "and" else (FALSE, TRUE)
    flat: list[Condition] = []
    for part in parts:
        for item in part[1:] if part[0] == word else [part]:
            if item == final:
                return final
            if item != neutral and item not in flat:
                flat.append(item)
    questions = [item[1] for item in flat if item[0] == "is"]
    if word == "or":
        # `a or (not a and b)` is `a or b`.
        known = {negation(question) for question in questions}
        shorter = [_without(item, known) for item in flat]
        if shorter != flat:
            return _joined(word, shorter)
        if any(item == TRUE for item in flat) or {negation(q) for q in questions} & {*questions}:
            return TRUE
    elif {negation(q) for q in questions} & {*questions}:
        return FALSE
    kept = [
        item
        for item in flat
        if not any(other is not item and _is_weaker(item, other, word) for other in flat)
    ]
    kept = list(dict.fromkeys(kept))
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else (word, *kept)


def _without(condition: Condition, known: Collection[str]) -> Condition:
    if condition[0] != "and":
        return condition
    rest = [item for item in condition[1:] if not (item[0] == "is" and item[1] in known)]
    return _joined("and", rest) if len(rest) + 1 < len(condition) else condition


_COMPARISON = re.compile(r"(?P<left>.+) (?P<sign><=|>=|<|>) (?P<number>-?\d+)")


def _is_weaker(first: Condition, second: Condition, word: str) -> bool:
    """True if the first comparison can be dropped where `word` joins it to the second."""
    if first[0] != "is" or second[0] != "is":
        return False
    bounds = [_COMPARISON.fullmatch(str(condition[1])) for condition in (first, second)]
    if None in bounds or any(" and " in str(c[1]) or " or " in str(c[1]) for c in (first, second)):
        return False
    one, other = (match for match in bounds if match is not None)
    if one["left"] != other["left"] or one["sign"][0] != other["sign"][0]:
        return False
    # Integers: `< 8` is `<= 7`.
    limits = [int(m["number"]) - (m["sign"] == "<") + (m["sign"] == ">") for m in (one, other)]
    is_upper = one["sign"][0] == "<"
    # Of two equal bounds, each would be dropped in favour of the other.
    if limits[0] == limits[1]:
        return False
    is_looser = limits[0] > limits[1] if is_upper else limits[0] < limits[1]
    return is_looser if word == "and" else not is_looser


def _text(condition: Condition) -> str:
    if condition[0] == "is":
        return str(condition[1])
    if condition in (TRUE, FALSE):
        return "True" if condition == TRUE else "False"
    texts = []
    for part in condition[1:]:
        text = _text(part)
        compound = part[0] in ("and", "or") or " or " in text or " and " in text
        texts.append(f"({text})" if compound and condition[0] == "and" else text)
    return f" {condition[0]} ".join(texts)


def tree_of(paths: Mapping[int, Iterable[tuple[str, bool]]]) -> Tree:
    """The tree of paths, each with its questions and answers in order.

    A path that has no answer to a question is on both sides of it.
    """
    return _built({leaf: dict(answers) for leaf, answers in paths.items()})


def _built(paths: Mapping[int, Mapping[str, bool]]) -> Tree:
    if not paths:
        return Tree()
    counts = Counter(question for answers in paths.values() for question in answers)
    if not counts:
        return Tree(leaf=min(paths))
    # The first question of those that most paths answer.
    question = max(counts, key=lambda question: counts[question])
    yes, no = (
        _built({
            leaf: {text: value for text, value in answers.items() if text != question}
            for leaf, answers in paths.items()
            if answers.get(question, answer) is answer
        })
        for answer in (True, False)
    )  # fmt: skip
    return Tree(question, yes, no)


def choice_conditions(
    kind: str, name: str, value: Any, others: Sequence[Any]
) -> list[tuple[str, bool]]:
    """Conditions with their truth, for the value of an option or a dtype in a configuration."""
    if kind == "has":
        return [(f"has({name})", bool(value))]
    if isinstance(value, bool):
        return [(name, value)]
    subject = f"dtype({name})" if kind == "dtype" else name
    answers = []
    for other in others[:-1]:  # the last is what is left
        if other is None:
            continue
        answers.append((f"{subject} == {other!r}", other == value))
        if other == value:
            break
    return answers
