"""The protocol between kbuild and a worker: requests and answers, one JSON object per line.

Before an expensive compilation, a worker may announce the kernel,
`{"id": 3, "kernel": <digest>}`, and gets `{"id": 3, "make": true}`; or false if it was compiled
before, or another worker compiles it.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

_IDLE_SECONDS = 60.0
"""Seconds without a request after which a worker ends, to release its memory."""


class RefusalError(Exception):
    """A request cannot be fulfilled; the message is for the kernel's author."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.file, self.line, self.hint = message, file, line, hint
        self.excerpt: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object of the refusal."""
        keys = ("message", "file", "line", "hint", "excerpt")
        return {key: getattr(self, key) for key in keys}


class WorkerCompiler(Protocol):
    """The compiler of a language.

    A method `ask_with`, if there is one, gets a function that decides whether to compile the kernel
    with a digest.
    """

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Describe the functions of a source."""

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compile one function, and write the code to the request's `output`."""


def serve(compiler: WorkerCompiler, requests: int, answers: int) -> None:
    """Answer requests until there are no more."""
    with os.fdopen(requests, "rb", buffering=0) as lines, os.fdopen(answers, "wb", 0) as out:
        current = 0
        incoming = _read_requests(lines)

        def say(what: Mapping[str, Any]) -> None:
            out.write(json.dumps({"id": current, **what}).encode() + b"\n")

        def ask(kernel: str) -> bool:
            say({"kernel": kernel})
            return bool(next(incoming, {}).get("make", True))

        if (ask_with := getattr(compiler, "ask_with", None)) is not None:
            ask_with(ask)
        for request in incoming:
            current = request["id"]
            say(_answer(compiler, request))


def _read_requests(lines: Any) -> Iterator[Mapping[str, Any]]:
    """Yield requests until the pipe is closed or idle for too long."""
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
        # Any other exception ends the process, and kbuild shows what it printed.
        return {"answer": perform(request)}
    except RefusalError as refusal:
        return {"refusal": refusal.to_json()}
