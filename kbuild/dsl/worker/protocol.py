"""Requests and answers, one JSON object per line.

Before a worker does what takes long, it may say what it is about to make,
`{"id": 3, "kernel": <digest>}`, and hears `{"id": 3, "make": true}`; or false, where that was made
before, or is being made elsewhere.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

_IDLE_SECONDS = 60.0
"""Seconds without a request after which a worker gives its memory back."""


class RefusalError(Exception):
    """A request cannot be met; the kernel's author reads the reason."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.file, self.line, self.hint = message, file, line, hint
        self.excerpt: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The refusal as a JSON object."""
        keys = ("message", "file", "line", "hint", "excerpt")
        return {key: getattr(self, key) for key in keys}


class WorkerCompiler(Protocol):
    """A language's compiler.

    One with a method `ask_with` is given who says whether to make the kernel with a digest.
    """

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The functions of a source."""

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compile one function; the code goes to the file that the request names."""


def serve(compiler: WorkerCompiler, requests: int, answers: int) -> None:
    """Answer requests until there are no more."""
    with os.fdopen(requests, "rb", buffering=0) as lines, os.fdopen(answers, "wb", 0) as out:
        current = 0
        heard = _read_requests(lines)

        def say(what: Mapping[str, Any]) -> None:
            out.write(json.dumps({"id": current, **what}).encode() + b"\n")

        def ask(kernel: str) -> bool:
            say({"kernel": kernel})
            return bool(next(heard, {}).get("make", True))

        if (ask_with := getattr(compiler, "ask_with", None)) is not None:
            ask_with(ask)
        for request in heard:
            current = request["id"]
            say(_answer(compiler, request))


def _read_requests(lines: Any) -> Iterator[Mapping[str, Any]]:
    """What kbuild says, until it says nothing more."""
    rest = b""
    while select.select([lines], [], [], _IDLE_SECONDS)[0]:
        block = lines.read(1 << 16)
        if not block:
            return
        *whole, rest = (rest + block).split(b"\n")
        yield from map(json.loads, whole)


def _answer(compiler: WorkerCompiler, request: Mapping[str, Any]) -> Mapping[str, Any]:
    perform = {"describe": compiler.describe, "compile": compiler.compile}[request["ask"]]
    try:
        return {"answer": perform(request)}
    except RefusalError as refusal:
        return {"refusal": refusal.to_json()}
