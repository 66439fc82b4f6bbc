"""A kernel's card on the Hub: the notice about its variants, and problems of its front matter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kbuild.system.errors import ToolchainError, install_command

_BEGIN, _END = "<!-- kbuild: notice -->", "<!-- kbuild: end of notice -->"
_OLD_NOTICE = re.compile(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


def with_notice(
    card: str,
    *,
    dirty: Sequence[str],
    noncompliant: Sequence[str],
    overruled: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """The card with a notice about some variants below its front matter, if one is due."""
    bare = _OLD_NOTICE.sub("", card)
    by_check: dict[tuple[str, str], list[str]] = {}
    for variant, checks in (overruled or {}).items():
        for check in checks.items():
            by_check.setdefault(check, []).append(variant)
    sentences = [
        *_sentence(dirty, "built from uncommitted sources, so {} cannot be built again"),
        *_sentence(noncompliant, "published although kbuild's checks found faults in {}"),
        *(
            f"The author overruled what the check `{check}` found in {_listed(names)}: "
            f"{_escape_reason(why)}"
            for (check, why), names in by_check.items()
        ),
    ]
    if not sentences:
        return bare
    quoted = "\n".join(f"> {line}" for line in ("**Take care.**", *sentences))
    front = _FRONT_MATTER.match(bare)
    at = front.end() if front else 0
    return f"{bare[:at]}{_BEGIN}\n{quoted}\n{_END}\n\n{bare[at:]}"


def _sentence(names: Sequence[str], text: str) -> tuple[str, ...]:
    if not names:
        return ()
    listed = _listed(names)
    verb, them = ("was", "it") if len(names) == 1 else ("were", "them")
    return (f"{listed} {verb} {text.format(them)}.",)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _escape_reason(reason: str) -> str:
    """A reason as text of a card: nothing in it is Markdown or HTML, and it ends a sentence."""
    text = escape(reason.rstrip("."), quote=False)
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", text) + "."


_TEXT_KEYS = ("license", "library_name", "license_name", "license_link")


def card_problems(text: str) -> tuple[str, ...]:
    """The reasons that the Hub cannot read a card's front matter; empty when it can.

    Raises:
        ToolchainError: `huggingface_hub` is not installed.
    """
    try:
        from huggingface_hub import ModelCard
        from yaml import YAMLError
    except ImportError as error:
        raise ToolchainError(
            "reading a card as the Hub does needs huggingface_hub",
            hint=install_command("huggingface_hub>=1.10"),
        ) from error
    try:
        read: Any = ModelCard(text)
        data = read.data.to_dict()
    except YAMLError as error:
        return (f"the front matter is not YAML: {_first_line(error)}",)
    except (ValueError, TypeError) as error:
        return (f"the front matter cannot be read: {_first_line(error)}",)
    return tuple(_front_matter_problems(data))


def _front_matter_problems(data: Mapping[str, Any]) -> Iterator[str]:
    for key in ("license", "library_name", "tags"):
        if not data.get(key):
            yield f"the front matter has no `{key}`"
    for key in _TEXT_KEYS:
        if not isinstance(data.get(key, ""), str):
            yield f"`{key}` in the front matter is not a string"
    tags = data.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        yield "`tags` in the front matter is not a list of strings"


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())
