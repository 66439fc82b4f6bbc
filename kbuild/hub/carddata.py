"""A card's front matter as the Hub's client reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.errors import ToolchainError

_TEXTS = ("license", "library_name", "license_name", "license_link")


def card_problems(text: str) -> tuple[str, ...]:
    """What is wrong with a card's front matter, in words; nothing when the Hub can read it.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
    """
    try:
        from huggingface_hub import ModelCard
        from yaml import YAMLError
    except ImportError as error:
        raise ToolchainError(
            "reading a card as the Hub does needs huggingface_hub",
            hint="pip install 'kbuild[hub]'",
        ) from error
    try:
        read: Any = ModelCard(text)
        data = read.data.to_dict()
    except YAMLError as error:
        return (f"the front matter is no YAML: {_first_line(error)}",)
    except (ValueError, TypeError) as error:
        return (f"the front matter cannot be read: {_first_line(error)}",)
    return tuple(_problems(data))


def _problems(data: Mapping[str, Any]) -> Iterator[str]:
    for key in ("license", "library_name", "tags"):
        if not data.get(key):
            yield f"the front matter has no `{key}`"
    for key in _TEXTS:
        if not isinstance(data.get(key, ""), str):
            yield f"`{key}` in the front matter is no text"
    tags = data.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        yield "`tags` in the front matter is no list of texts"


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
