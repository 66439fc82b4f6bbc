"""The text of each section of a card, from `templates/card/`; docstrings become Markdown.

Google's and numpydoc's docstring sections become lists, indented text becomes code. Paragraphs with
TODO notes are left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kbuild.publish.card.model import CardFacts, PublicClass, PublicFunction, VariantFacts
from kbuild.system.quantities import time_text

if TYPE_CHECKING:
    from jinja2 import Environment


UNFINISHED = re.compile(r"\b(?:TODO|FIXME|TBD)\b")
_DOCSTRING_TITLES = {
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
_OTHER_TITLES = {
    "example",
    "examples",
    "note",
    "notes",
    "references",
    "see also",
    "warning",
    "warnings",
}
_GOOGLE_TITLE = re.compile(r"(?P<title>[A-Z][\w ]*):")
_NUMPY_UNDERLINE = re.compile(r"-{3,}")
_GOOGLE_ENTRY = re.compile(
    r"(?P<name>\*{0,2}[\w.]+)(?: ?\((?P<kind>[^)]*)\))?:(?: (?P<text>.*))?", re.DOTALL
)
_NUMPY_ENTRY = re.compile(r"(?P<name>[\w.*, ]+?)(?: ?: ?(?P<kind>.+))?")
_CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
"""Code between two runs of backticks of one length, in one line: a list or a quotation may begin in
the next one."""
_LIST_TITLES = {"Arguments", "Attributes", "Raises"}


@dataclass(frozen=True)
class _DocstringSection:
    """A part of a docstring; without a title what stands before the first one."""

    title: str = ""
    underlined: bool = False
    """True in numpydoc's style, where a name stands in a line of its own."""
    lines: list[str] = field(default_factory=list)


def docstring_markdown(doc: str) -> str:
    """The docstring as Markdown; empty when there is nothing to say."""
    parts = (_section_markdown(section) for section in _docstring_sections(doc.splitlines()))
    return "\n\n".join(part for part in parts if part)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, code in backticks left alone."""
    parts, at = [], 0
    for code in _CODE.finditer(text):
        parts += [_escaped_plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, _escaped_plain(text[at:])])


def _escaped_plain(text: str) -> str:
    text = re.sub(r"&(?=\w+;|#)", "&amp;", text).replace("<", "&lt;")
    text = text.replace("`", "&#96;")  # one alone would make code of what follows
    text = re.sub(r"(?<=\w)\*(?=\w)", r"\\*", text)
    return re.sub(r"(?<![\w\\])_|_(?!\w)", r"\\_", text)


def _docstring_sections(lines: Sequence[str]) -> Iterator[_DocstringSection]:
    section = _DocstringSection()
    skipped = False
    for at, line in enumerate(lines):
        if skipped:
            skipped = False
            continue
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        google, underlined = (
            _GOOGLE_TITLE.fullmatch(line),
            _NUMPY_UNDERLINE.fullmatch(below) is not None,
        )
        title = google["title"] if google else line.strip() if underlined else ""
        if title.lower() in {*_DOCSTRING_TITLES, *_OTHER_TITLES}:
            yield section
            section = _DocstringSection(_DOCSTRING_TITLES.get(title.lower(), title), underlined)
            skipped = underlined
        else:
            section.lines.append(line)
    yield section


def _section_markdown(section: _DocstringSection) -> str:
    lines = textwrap.dedent("\n".join(section.lines)).strip("\n").splitlines()
    if not section.title:
        return _paragraphs(lines)
    if section.title not in _LIST_TITLES:
        text = _paragraphs(lines)
    else:
        text = "\n".join(_entries(lines, underlined=section.underlined))
    return f"**{section.title}**\n\n{text}" if text else ""


def _paragraphs(lines: Sequence[str]) -> str:
    blocks = "\n".join(lines).strip("\n").split("\n\n")
    return "\n\n".join(_paragraph(block) for block in blocks if _is_finished(block))


def _is_finished(block: str) -> bool:
    return bool(block.strip()) and UNFINISHED.search(block) is None


def _paragraph(block: str) -> str:
    stripped = block.strip("\n")
    if stripped.lstrip().startswith(">>>") or stripped.startswith(("    ", "\t")):
        return f"```python\n{textwrap.dedent(stripped)}\n```"
    return "\n".join(escape_markdown(line.strip()) for line in stripped.splitlines())


def _entries(lines: Sequence[str], *, underlined: bool) -> Iterator[str]:
    """Named things with what is said of them, as items of a list."""
    for head, body in _hanging(lines):
        description = " ".join(line.strip() for line in body if line.strip())
        whole = head if underlined else f"{head} {description}".strip()
        entry = (_NUMPY_ENTRY if underlined else _GOOGLE_ENTRY).fullmatch(whole)
        if not _is_finished(f"{head} {description}"):
            continue
        if entry is None:
            yield f"- {escape_markdown(f'{head} {description}'.strip())}"
        else:
            text = description if underlined else entry["text"] or ""
            yield _item(entry["name"], entry["kind"], text)


def _item(name: str, kind: str | None, text: str) -> str:
    shown = f"`{name}`" + (f" ({escape_markdown(kind)})" if kind else "")
    return f"- {shown}: {escape_markdown(text)}" if text else f"- {shown}"


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


SECTIONS = ("summary", "notice", "usage", "functions", "layers", "variants", "benchmarks", "origin")
_MAX_SIGNATURE_WIDTH = 88
_FRAMEWORK_TITLES = {"torch": "", "torch-stable-abi": "", "tvm-ffi": "TVM-FFI "}
_SIZE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def section_text(name: str, facts: CardFacts) -> str:
    """The text of one part; empty when there is nothing to tell."""
    template = _template_environment().get_template(f"card/{name}.md.j2")
    return template.render(facts=facts, api=facts.public_api).strip("\n")


def signature_text(function: PublicFunction, name: str = "") -> str:
    """The signature, over several lines when it is long."""
    signature = function.signature
    if name:
        signature = name + signature.removeprefix(function.name)
    if len(signature) <= _MAX_SIGNATURE_WIDTH or not function.parameters:
        return signature
    head = name or function.name
    arrow = f" -> {function.returns}" if function.returns else ""
    body = "".join(f"    {parameter},\n" for parameter in function.parameters)
    return f"{head}(\n{body}){arrow}"


def size_text(size: int | None) -> str:
    """`1.2 MB`, in powers of 1000 as the Hub counts; empty when unknown."""
    if size is None:
        return ""
    for unit, word in _SIZE_UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {word}"
    return f"{size} B"


def example_call(function: PublicFunction) -> str:
    """A call with what must be given: `relu(x)`."""
    if function.parameters is None:
        return f"{function.name}(...)"
    return f"{function.name}({', '.join(function.required)})"


def framework_text(variant: VariantFacts) -> str:
    """The releases of Torch that load it: `2.13`, `2.11 or newer`, `any`."""
    parsed = variant.variant
    if parsed is None:
        return ""
    if parsed.is_noarch:
        return "any"
    newer = " or newer" if parsed.framework == "torch-stable-abi" else ""
    return f"{_FRAMEWORK_TITLES.get(parsed.framework, '')}{parsed.framework_version}{newer}"


def backend_text(variant: VariantFacts) -> str:
    """`CUDA 13.0`, `CPU`."""
    from kbuild.backends import BACKENDS

    parsed = variant.variant
    if parsed is None:
        return ""
    backend = BACKENDS.find(parsed.backend)
    title = backend.title if backend else parsed.backend
    return f"{title} {parsed.backend_version}" if parsed.backend_version else title


def _one_line(text: str) -> str:
    """One line that a card may say: nothing of what its author still wants to do."""
    return "" if UNFINISHED.search(text) else escape_markdown(text).replace("|", "\\|")


def _link_or_code(text: str) -> str:
    return f"<{text}>" if text.startswith(("https://", "http://")) else f"`{text}`"


def _yes_or_no(layer: PublicClass, name: str, default: str) -> str:
    return "yes" if layer.attributes.get(name, default) == "True" else "no"


@cache
def _template_environment() -> Environment:
    from kbuild.system.rendering import template_environment

    environment = template_environment().overlay()
    filters: Mapping[str, Callable[..., Any]] = {
        "doc": docstring_markdown,
        "said": _one_line,
        "signature": signature_text,
        "size": size_text,
        "url": _link_or_code,
        "time": time_text,
        "call": example_call,
        "framework": framework_text,
        "backend": backend_text,
        "promise": _yes_or_no,
    }
    environment.filters = {**environment.filters, **filters}
    return environment
