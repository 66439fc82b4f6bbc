"""Imports a source for each answer that a question can have, and compares what comes of it.

An import may change libraries, so a process that has imported a source does not import it again:
a copy of the process, made before, does.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from kbuild.languages.worker.device import Doubt, TargetDevice, UnknownValue
from kbuild.languages.worker.protocol import RefusalError

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_DEEP = 4
"""Containers in containers that are compared."""
_SECONDS = 120
"""How long a repeated import may take."""


class FreshProcess:
    """A copy of this process as it was at the start of the context."""

    def __init__(self, run: Callable[..., Any]) -> None:
        """Each call of `ask` runs the function in a copy of its own; it returns JSON."""
        self._run = run

    def __enter__(self) -> FreshProcess:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(self._requests)
            os.close(self._answers)
            self._serve(requests, answers)
        os.close(requests)
        os.close(answers)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._requests)
        os.close(self._answers)
        os.waitpid(self._process, 0)

    def ask(self, *arguments: Any) -> Any:
        """What the function returns; None where its process ended."""
        os.write(self._requests, json.dumps(arguments).encode() + b"\n")
        with os.fdopen(os.dup(self._answers), "rb") as answers:
            line = answers.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _serve(self, requests: int, answers: int) -> None:
        """Answer until nobody asks any more; ends this process."""
        try:
            with os.fdopen(requests, "rb") as lines:
                for line in lines:
                    process = os.fork()
                    if not process:
                        signal.alarm(_SECONDS)
                        answer = json.dumps(self._run(*json.loads(line))).encode() + b"\n"
                        with os.fdopen(answers, "wb") as out:
                            out.write(answer)
                        os._exit(0)
                    if os.waitpid(process, 0)[1]:
                        break
        finally:
            os._exit(0)


def judge_doubts(
    device: TargetDevice, facts: Callable[[str], Mapping[str, str]], fresh: FreshProcess
) -> None:
    """Compare what comes of each answer that devices of the arch could give as well.

    Args:
        device: answered while the modules were imported.
        facts: gives the facts of the modules, see `module_facts`.
        fresh: imports them with other answers.

    Raises:
        RefusalError: what comes of it differs.
    """
    for question, doubt in device.doubts.items():
        first = device.model.get(question, 0)
        mine = facts(doubt.answers[first])
        for at, answer in enumerate(doubt.answers):
            if at != first:
                result = fresh.ask({question: at}, answer)
                theirs = _facts_of(result, f"`{question}` is {answer!r}", doubt)
                _compare(question, doubt, (doubt.answers[first], mine), (answer, theirs))


def _facts_of(result: Any, condition: str, doubt: Doubt) -> Mapping[str, str]:
    refused = {"message": "the process ended", "file": doubt.file, "line": doubt.line}
    refused = refused if result is None else result.get("refusal")
    if refused:
        message = f"cannot be imported if {condition}: {refused['message']}"
        place = {"file": refused["file"], "line": refused["line"]}
        raise RefusalError(message, **place, hint=doubt.hint)
    facts: Mapping[str, str] = result["facts"]
    return facts


def _compare(
    question: str,
    doubt: Doubt,
    mine: tuple[str, Mapping[str, str]],
    theirs: tuple[str, Mapping[str, str]],
) -> None:
    """Raise a `RefusalError` where names stand for something else with another answer."""
    for name in sorted({*mine[1], *theirs[1]}):
        texts = [(answer, facts.get(name)) for answer, facts in (mine, theirs)]
        if texts[0][1] != texts[1][1] and len({_without(t, answer) for answer, t in texts}) > 1:
            message = f"`{name}` depends on `{question}`, which differs among {doubt.among}"
            raise RefusalError(
                f"{message}: {mine[0]!r}, {theirs[0]!r}",
                file=doubt.file,
                line=doubt.line,
                hint=doubt.hint,
            )


def module_facts(modules: Mapping[str, ModuleType], answer: str) -> dict[str, str]:
    """What names stand for, as text; the answer to a question by itself counts for nothing."""
    return {
        f"{name}.{key}": _described(value, answer)
        for name, module in modules.items()
        for key, value in vars(module).items()
        if not key.startswith("__")
    }


def _described(value: Any, answer: str, depth: int = 0) -> str:
    """A plain value as text, another by what it is called and where it begins."""
    if type(value) is str and value == answer:
        return "the answer"
    if value is None or type(value) in {bool, int, float, str, bytes, UnknownValue}:
        return repr(value)
    if type(value) in {list, tuple, set, frozenset, dict} and depth < _DEEP:
        items = [*value.items()] if type(value) is dict else [*value]
        texts = [_described(element, answer, depth + 1) for element in items]
        return f"{type(value).__name__}{texts}"
    if issubclass(type(value), ModuleType):  # which may go by several names
        return f"module {vars(value).get('__file__')}"
    if type(value).__name__ == "constexpr":
        return f"constexpr {_described(value.value, answer, depth + 1)}"
    function = getattr_static(value, "fn", value)
    function = getattr_static(function, "fn", function)
    code = function.__code__ if type(function) is FunctionType else None
    line = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    descriptions = [_described(vars(config), answer, depth + 1) for config in _configs(value)]
    return f"{type(value).__name__} {_name_of(value)} {line} {descriptions}"


def _name_of(value: Any) -> str:
    is_named = isinstance(value, (FunctionType, BuiltinFunctionType, type))
    return str(value.__name__ if is_named else getattr_static(value, "__name__", ""))


def _without(text: str | None, answer: str) -> str | None:
    """A fact without the numbers of a release: `(2, 13)` and `"213"` say no more than it does."""
    match = _RELEASE.match(answer)
    if text is None or match is None:
        return text
    return re.sub(rf"(?<!\d)(?:{match[1]})?{match[2]}(?!\d)", "_", text)


def _configs(value: Any) -> Sequence[Any]:
    """The candidates of a kernel that has some; an object of the author's may answer anything."""
    configs = getattr_static(value, "configs", None) if getattr_static(value, "fn", None) else None
    if type(configs) not in {list, tuple}:
        return ()
    return [config for config in configs if hasattr(config, "__dict__")]
