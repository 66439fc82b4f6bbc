"""Why something is not uploaded: every reason at once, each with what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbuild.errors import HubError


@dataclass(frozen=True)
class Reason:
    """One thing that is in the way."""

    subject: str
    """What it is about: a variant, `token`, `repository`, `branch`, `card`, ..."""
    words: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.subject}: {self.words}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, Any]:
        """The reason as a JSON object."""
        return {"subject": self.subject, "message": self.words, "hint": self.hint}


class UploadRefusedError(HubError):
    """Nothing was sent; carries every reason."""

    def __init__(self, message: str, reasons: Sequence[Reason]) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)

    def __str__(self) -> str:
        return "\n".join([self.message, *(_indented(str(reason)) for reason in self.reasons)])

    def to_json(self) -> dict[str, Any]:
        """The failure as a JSON object."""
        return super().to_json() | {"reasons": [reason.to_json() for reason in self.reasons]}


def refuse(message: str, reasons: Sequence[Reason]) -> None:
    """Stop when there is a reason to.

    Raises:
        UploadRefusedError: with all of them.
    """
    if reasons:
        raise UploadRefusedError(message, reasons)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
