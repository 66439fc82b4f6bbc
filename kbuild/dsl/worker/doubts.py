"""Imports a source with each possible answer to a question, and compares the results.

An import may change libraries, so a process that has imported a source cannot repeat the import:
a fork of the process, made before, does.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NoReturn

from kbuild.dsl.worker.device import Doubt, TargetDevice, UnknownValue
from kbuild.dsl.worker.protocol import RefusalError

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_DEEP = 4
"""Depth of nested containers that are compared."""
_SECONDS = 120
"""Maximum seconds of a repeated import."""


AskFresh = Callable[..., Any]
"""Calls a function in a fresh process and returns its result; None if the process ended."""


@contextmanager
def fresh_process(run: Callable[..., Any]) -> Iterator[AskFresh]:
    """Fork this process at the start of the context.

    Each call runs the function, which returns JSON, in a fork of that fork.
    """
    (requests, ask), (answers, answer) = os.pipe(), os.pipe()
    process = os.fork()
    if not process:
        # Otherwise the fork would hold its own input open, and never see its end.
        os.close(ask)
        os.close(answers)
        _serve(run, requests, answer)
    os.close(requests)
    os.close(answer)
    try:
        yield partial(_ask, ask, answers)
    finally:
        os.close(ask)
        os.close(answers)
        # It ends, because its input has ended with `ask`.
        os.waitpid(process, 0)


def _ask(requests: int, answers: int, *arguments: Any) -> Any:
    os.write(requests, json.dumps(arguments).encode() + b"\n")
    # A copy: closing the file must leave the pipe open for the next answer.
    with os.fdopen(os.dup(answers), "rb") as lines:
        line = lines.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def _serve(run: Callable[..., Any], requests: int, answers: int) -> NoReturn:
    """Answer requests until there are no more; then end this process."""
    try:
        with os.fdopen(requests, "rb") as lines:
            for line in lines:
                process = os.fork()
                if not process:
                    # Without a handler, the signal ends the process.
                    signal.alarm(_SECONDS)
                    status = 1
                    try:
                        answer = json.dumps(run(*json.loads(line))).encode() + b"\n"
                        with os.fdopen(answers, "wb") as out:
                            out.write(answer)
                        status = 0
                    finally:
                        # Also after an exception, such as the `SystemExit` of a source: with
                        # status 0 and no answer, `_ask` would wait.
                        os._exit(status)
                # It died before it answered: ending this process closes the pipe that `_ask` reads.
                if os.waitpid(process, 0)[1]:
                    break
    finally:
        os._exit(0)


def judge_doubts(
    device: TargetDevice, facts: Callable[[str], Mapping[str, str]], fresh: AskFresh
) -> None:
    """Raise an error if the modules depend on an answer that differs between devices of the arch.

    Args:
        device: the device that answered during the import.
        facts: returns the facts of the modules, see `module_facts`.
        fresh: imports them with other answers.

    Raises:
        RefusalError: the modules depend on such an answer.
    """
    for question, doubt in device.doubts.items():
        first = device.model.get(question, 0)
        mine = facts(doubt.answers[first])
        for at, answer in enumerate(doubt.answers):
            if at != first:
                result = fresh({question: at}, answer)
                theirs = _facts_of(result, f"`{question}` is {answer!r}", doubt)
                _compare(question, doubt, (doubt.answers[first], mine), (answer, theirs))


def _facts_of(result: Any, condition: str, doubt: Doubt) -> Mapping[str, str]:
    refused: dict[str, Any] | None
    refused = {"message": "the process ended", "file": doubt.file, "line": doubt.line}
    refused = refused if result is None else result.get("refusal")
    if refused:
        message = f"cannot be imported if {condition}: {refused['message']}"
        file, line = refused["file"], refused["line"]
        raise RefusalError(message, file=file, line=line, hint=doubt.hint)
    facts: Mapping[str, str] = result["facts"]
    return facts


def _compare(
    question: str,
    doubt: Doubt,
    mine: tuple[str, Mapping[str, str]],
    theirs: tuple[str, Mapping[str, str]],
) -> None:
    """Raise a `RefusalError` if the value of a name depends on the answer."""
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
    """Text of each name's value; a value that is the answer itself is not compared."""
    return {
        f"{name}.{key}": _described(value, answer)
        for name, module in modules.items()
        for key, value in vars(module).items()
        if not key.startswith("__")
    }


def _described(value: Any, answer: str, depth: int = 0) -> str:
    """Plain values as text, others by name and place of definition."""
    if type(value) is str and value == answer:
        return "the answer"
    if value is None or type(value) in {bool, int, float, str, bytes, UnknownValue}:
        return repr(value)
    if type(value) in {list, tuple, set, frozenset, dict} and depth < _DEEP:
        items = [*value.items()] if type(value) is dict else [*value]
        texts = [_described(element, answer, depth + 1) for element in items]
        return f"{type(value).__name__}{texts}"
    if issubclass(type(value), ModuleType):  # a module may have several names
        return f"module {vars(value).get('__file__')}"
    if type(value).__name__ == "constexpr":
        return f"constexpr {_described(value.value, answer, depth + 1)}"
    # `fn` of Triton's JITFunction is the author's function, and `fn` of a tuner the JITFunction.
    function = getattr_static(value, "fn", value)
    function = getattr_static(function, "fn", function)
    code = function.__code__ if type(function) is FunctionType else None
    line = "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    descriptions = [_described(vars(config), answer, depth + 1) for config in _configs(value)]
    return f"{type(value).__name__} {_name_of(value)} {line} {descriptions}"


def _name_of(value: Any) -> str:
    is_named = issubclass(type(value), (FunctionType, BuiltinFunctionType, type))
    return str(value.__name__ if is_named else getattr_static(value, "__name__", ""))


def _without(text: str | None, answer: str) -> str | None:
    """Text without the numbers of a release: `(2, 13)` and `"213"` only repeat the answer."""
    match = _RELEASE.match(answer)
    if text is None or match is None:
        return text
    return re.sub(rf"(?<!\d)(?:{match[1]})?{match[2]}(?!\d)", "_", text)


def _configs(value: Any) -> Sequence[Any]:
    """Candidates of an autotuned kernel; looks only at lists, since objects may answer anything."""
    has_function = getattr_static(value, "fn", None) is not None
    configs: Any = getattr_static(value, "configs", None) if has_function else None
    if type(configs) not in {list, tuple}:
        return ()
    return [config for config in configs if hasattr(config, "__dict__")]
