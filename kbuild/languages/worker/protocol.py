"""Requests and answers, one JSON object per line."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Mapping
from typing import Any, Protocol

_IDLE = 60.0
"""Seconds without a request after which a worker gives its memory back."""


class RefusalError(Exception):
    """What was asked for cannot be made, in words for the author of the kernel."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.file, self.line, self.hint = message, file, line, hint
        self.excerpt: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The refusal as a JSON object."""
        return {
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "hint": self.hint,
            "excerpt": list(self.excerpt),
        }


class Answering(Protocol):
    """A language's compiler."""

    def describe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The functions of a source."""
        ...

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compile one function; the code goes to the file that the request names."""
        ...


def serve(compiler: Answering, requests: int, answers: int) -> None:
    """Answer requests until there are no more."""
    with os.fdopen(requests, "rb", buffering=0) as lines, os.fdopen(answers, "wb", 0) as out:
        rest = b""
        while select.select([lines], [], [], _IDLE)[0]:
            block = lines.read(1 << 16)
            if not block:
                return
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                out.write(json.dumps(_answer(compiler, json.loads(line))).encode() + b"\n")


def _answer(compiler: Answering, request: Mapping[str, Any]) -> Mapping[str, Any]:
    perform = {"describe": compiler.describe, "compile": compiler.compile}[request["ask"]]
    try:
        return {"id": request["id"], "answer": perform(request)}
    except RefusalError as refusal:
        return {"id": request["id"], "refusal": refusal.to_json()}
