"""The text of each part of a card, from `templates/card/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kbuild.card.docstring import UNFINISHED, escaped, markdown_of
from kbuild.card.model import CardFacts, VariantFacts
from kbuild.surface import Class, Function, Kind

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = ("summary", "notice", "usage", "functions", "layers", "variants", "benchmarks", "origin")
_WIDE = 88
_TITLES = {"torch": "", "torch-stable-abi": "", "tvm-ffi": "TVM-FFI "}
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def section_text(name: str, facts: CardFacts) -> str:
    """The text of one part; empty when there is nothing to tell."""
    template = _environment().get_template(f"card/{name}.md.j2")
    return template.render(facts=facts, surface=facts.surface).strip("\n")


def signature_text(function: Function, name: str = "") -> str:
    """The signature, over several lines when it is long."""
    signature = function.signature
    if name:
        signature = name + signature.removeprefix(function.name)
    if len(signature) <= _WIDE or not function.parameters:
        return signature
    marks = _split_signature(function)
    head = name or function.name
    arrow = f" -> {function.returns}" if function.returns else ""
    body = "".join(f"    {part},\n" for part in marks)
    return f"{head}(\n{body}){arrow}"


def size_text(size: int | None) -> str:
    """`1.2 MB`, in powers of 1000 as the Hub counts; empty when unknown."""
    if size is None:
        return ""
    for unit, word in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {word}"
    return f"{size} B"


def time_text(milliseconds: float) -> str:
    """`0.42 µs`, `12.3 µs`, `1.23 ms` or `1.20 s`, with three digits that mean something."""
    told = float(f"{milliseconds:.3g}")
    for factor, word in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        value = told * factor
        if value >= 1:
            return f"{value:.3g} {word}" if value < 1000 else f"{value:.0f} {word}"  # noqa: PLR2004
    return f"{milliseconds * 1e3:.2g} µs"


def example_call(function: Function) -> str:
    """A call with what must be given: `relu(x)`."""
    if function.parameters is None:
        return f"{function.name}(...)"
    needed = [parameter for parameter in function.parameters if parameter.required]
    words = [p.name if p.kind is not Kind.KEYWORD_ONLY else f"{p.name}={p.name}" for p in needed]
    return f"{function.name}({', '.join(words)})"


def framework_text(variant: VariantFacts) -> str:
    """Which Torch loads it: `2.13`, `2.11 or newer`, `any`."""
    parsed = variant.variant
    if parsed is None:
        return ""
    if parsed.is_noarch:
        return "any"
    newer = " or newer" if parsed.framework == "torch-stable-abi" else ""
    return f"{_TITLES.get(parsed.framework, '')}{parsed.framework_version}{newer}"


def backend_text(variant: VariantFacts) -> str:
    """`CUDA 13.0`, `CPU`."""
    from kbuild.backends import BACKENDS

    parsed = variant.variant
    if parsed is None:
        return ""
    titles = {backend.name: backend.title for backend in BACKENDS.load()}
    title = titles.get(parsed.backend, parsed.backend)
    return f"{title} {parsed.backend_version}" if parsed.backend_version else title


def _split_signature(function: Function) -> list[str]:
    """The parameters as they stand in the signature, its `/` and `*` included."""
    found = []
    parameters = function.parameters or ()
    kinds = [parameter.kind for parameter in parameters]
    for at, parameter in enumerate(parameters):
        if parameter.kind is Kind.KEYWORD_ONLY and Kind.VAR_POSITIONAL not in kinds:
            found += ["*"] * (Kind.KEYWORD_ONLY not in kinds[:at])
        found.append(str(parameter))
        if parameter.kind is Kind.POSITIONAL_ONLY and Kind.POSITIONAL_ONLY not in kinds[at + 1 :]:
            found.append("/")
    return found


def _said(text: str) -> str:
    """One line that a card may say: nothing of what its author still wants to do."""
    return "" if UNFINISHED.search(text) else escaped(text).replace("|", "\\|")


def _url(text: str) -> str:
    return f"<{text}>" if text.startswith(("https://", "http://")) else f"`{text}`"


def _promise(layer: Class, name: str, default: str) -> str:
    return "yes" if layer.attributes.get(name, default) == "True" else "no"


@cache
def _environment() -> Environment:
    from kbuild.generate.templates import template_environment

    environment = template_environment(autoescape=False).overlay()
    filters: Mapping[str, Callable[..., Any]] = {
        "doc": markdown_of,
        "said": _said,
        "signature": signature_text,
        "size": size_text,
        "url": _url,
        "time": time_text,
        "call": example_call,
        "framework": framework_text,
        "backend": backend_text,
        "promise": _promise,
    }
    environment.filters = {**environment.filters, **filters}
    return environment
