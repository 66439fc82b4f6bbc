"""A docstring as Markdown.

Google's sections (`Args:`, `Returns:`, ...) and numpydoc's (underlined) become lists; examples and
whatever else is indented become code; the rest is text. Paragraphs that are notes of their author
to themselves are left out: a card never says that something is still to be done.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

UNFINISHED = re.compile(r"\b(?:TODO|FIXME|TBD)\b")
_TITLES = {
    "args": "Arguments",
    "arguments": "Arguments",
    "parameters": "Arguments",
    "keyword args": "Arguments",
    "keyword arguments": "Arguments",
    "attributes": "Attributes",
    "returns": "Returns",
    "yields": "Yields",
    "raises": "Raises",
}
_OTHER = {"example", "examples", "note", "notes", "references", "see also", "warning", "warnings"}
_GOOGLE = re.compile(r"(?P<title>[A-Z][\w ]*):")
_UNDERLINE = re.compile(r"-{3,}")
_GOOGLE_ENTRY = re.compile(
    r"(?P<name>\*{0,2}[\w.]+)(?: ?\((?P<kind>[^)]*)\))?:(?: (?P<text>.*))?", re.DOTALL
)
_NUMPY_ENTRY = re.compile(r"(?P<name>[\w.*, ]+?)(?: ?: ?(?P<kind>.+))?")
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1(?!`)", re.DOTALL)
_NAMED = {"Arguments", "Attributes", "Raises"}


@dataclass(frozen=True)
class _Section:
    """A part of a docstring; without a title what stands before the first one."""

    title: str = ""
    underlined: bool = False
    """True in numpydoc's style, where a name stands in a line of its own."""
    lines: list[str] = field(default_factory=list)


def markdown_of(doc: str) -> str:
    """The docstring as Markdown; empty when there is nothing to say."""
    parts = (_text(section) for section in _sections(doc.splitlines()))
    return "\n\n".join(part for part in parts if part)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, code in backticks left alone."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [_escaped_plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, _escaped_plain(text[at:])])


def _escaped_plain(text: str) -> str:
    text = re.sub(r"&(?=\w+;|#)", "&amp;", text).replace("<", "&lt;")
    text = re.sub(r"(?<=\w)\*(?=\w)", r"\\*", text)
    return re.sub(r"(?<![\w\\])_|_(?!\w)", r"\\_", text)


def _sections(lines: Sequence[str]) -> Iterator[_Section]:
    section = _Section()
    skipped = False
    for at, line in enumerate(lines):
        if skipped:
            skipped = False
            continue
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        google, underlined = _GOOGLE.fullmatch(line), _UNDERLINE.fullmatch(below) is not None
        title = google["title"] if google else line.strip() if underlined else ""
        if title.lower() in {*_TITLES, *_OTHER}:
            yield section
            section = _Section(_TITLES.get(title.lower(), title), underlined)
            skipped = underlined
        else:
            section.lines.append(line)
    yield section


def _text(section: _Section) -> str:
    lines = textwrap.dedent("\n".join(section.lines)).strip("\n").splitlines()
    if not section.title:
        return _prose(lines)
    if section.title not in _NAMED:
        text = _prose(lines)
    else:
        text = "\n".join(_entries(lines, underlined=section.underlined))
    return f"**{section.title}**\n\n{text}" if text else ""


def _prose(lines: Sequence[str]) -> str:
    blocks = "\n".join(lines).strip("\n").split("\n\n")
    return "\n\n".join(_paragraph(block) for block in blocks if _is_said(block))


def _is_said(block: str) -> bool:
    return bool(block.strip()) and UNFINISHED.search(block) is None


def _paragraph(block: str) -> str:
    stripped = block.strip("\n")
    if stripped.lstrip().startswith(">>>") or stripped.startswith(("    ", "\t")):
        return f"```python\n{textwrap.dedent(stripped)}\n```"
    return "\n".join(escaped(line.strip()) for line in stripped.splitlines())


def _entries(lines: Sequence[str], *, underlined: bool) -> Iterator[str]:
    """Named things with what is said of them, as items of a list."""
    for head, body in _hanging(lines):
        said = " ".join(line.strip() for line in body if line.strip())
        whole = head if underlined else f"{head} {said}".strip()
        entry = (_NUMPY_ENTRY if underlined else _GOOGLE_ENTRY).fullmatch(whole)
        if not _is_said(f"{head} {said}"):
            continue
        if entry is None:
            yield f"- {escaped(f'{head} {said}'.strip())}"
        else:
            text = said if underlined else entry["text"] or ""
            yield _item(entry["name"], entry["kind"], text)


def _item(name: str, kind: str | None, text: str) -> str:
    shown = f"`{name}`" + (f" ({escaped(kind)})" if kind else "")
    return f"- {shown}: {escaped(text)}" if text else f"- {shown}"


def _hanging(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines at the margin with the indented ones below each."""
    head, body = "", list[str]()
    for line in lines:
        if line.startswith((" ", "\t")) or not line.strip():
            body.append(line)
            continue
        if head:
            yield head, body
        head, body = line, []
    if head:
        yield head, body
