"""Hides secrets in texts before they are shown or kept: tokens, signatures, passwords."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

MASK = "***"
_OPTIONS = ("--identity-token", "--token")
_VARIABLES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "SIGSTORE_IDENTITY_TOKEN"),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"),
)
_SHORTEST = 8
"""Characters of the shortest secret: taking out less would eat into ordinary words."""
_SHAPES = (
    re.compile(r"(?P<kept>)\bhf_(?:[A-Za-z0-9]{16,}|(?:oauth|jwt)_[\w.-]+)"),
    re.compile(r"(?i)(?P<kept>\bbearer )[^\s\"',}]+"),
    re.compile(r"(?P<kept>://)[^/\s\"']+(?=@)"),
    re.compile(
        r"(?i)(?P<kept>[?&](?:[\w-]*[_-])?(?:signature|credential|token|secret|password|key|sig)=)"
        r"[^&\s\"']+"
    ),
)


def redacted(text: str, environ: Mapping[str, str] | None = None) -> str:
    """The text without tokens, signatures of addresses and passwords in addresses.

    Tokens are known by their shape, and by their value where `huggingface_hub` would look for it.
    """
    # The longest first: one secret may be a part of another one.
    for secret in sorted(set(_secrets(os.environ if environ is None else environ)), key=len)[::-1]:
        text = text.replace(secret, MASK)
    for shape in _SHAPES:
        text = shape.sub(rf"\g<kept>{MASK}", text)
    return text


def without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without the values of options that take a secret."""
    shown: list[str] = []
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if shown and shown[-1] in _OPTIONS:
            shown.append(MASK)
        elif equals and name in _OPTIONS:
            shown.append(f"{name}={MASK}")
        else:
            shown.append(argument)
    return tuple(shown)


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _VARIABLES:
        yield from _long(environ.get(name, ""))
    for file in _token_files(environ):
        try:
            yield from _long(file.read_text("utf-8", "replace"))
        except OSError:
            continue


def _long(text: str) -> Iterator[str]:
    secret = text.strip()
    if len(secret) >= _SHORTEST:
        yield secret


def _token_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Files in which `hf auth login` keeps the token."""
    named = environ.get("HF_TOKEN_PATH")
    if named:
        yield Path(named)
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never fails
    yield Path(environ.get("HF_HOME") or Path(cache, "huggingface")) / "token"
