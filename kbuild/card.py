"""A kernel's card: its `CARD.md` template filled with facts read from the project.

Nothing is imported or executed: functions and layers are read off the syntax tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kbuild.errors import KbuildError
from kbuild.surface import Surface, package_of, read_surface

BENCHMARK = "benchmarks/benchmark.py"
UNFINISHED = "TODO"


class CardError(KbuildError):
    """The card cannot be filled, or is not fit to be read by others yet."""

    kind = "card"


@dataclass(frozen=True)
class CardFacts:
    """What a template may use, under these names."""

    repo_id: str
    """`org/kernel` on the Hub."""
    name: str
    version: int
    license: str
    """SPDX identifier in lower case, as model cards write it."""
    functions: tuple[str, ...] = ()
    """Public names of the kernel's package, without `layers`."""
    layers: tuple[str, ...] = ()
    """Classes of `layers`, when that is public."""
    has_benchmark: bool = False
    upstream: str | None = None
    source: str | None = None
    variants: tuple[str, ...] = ()


def facts_of(
    project_root: Path,
    *,
    repo_id: str,
    name: str,
    version: int,
    license: str,  # noqa: A002 - the word of `build.toml`
    upstream: str | None = None,
    source: str | None = None,
    variants: Sequence[str] = (),
) -> CardFacts:
    """Facts from the configuration, and those that the project's files show.

    Raises:
        SurfaceError: the package does not parse.
    """
    package = package_of(project_root, name.replace("-", "_"))
    surface = read_surface(package) if package else Surface()
    return CardFacts(
        repo_id=repo_id,
        name=name,
        version=version,
        license=license.lower(),
        functions=tuple(name for name in surface.names if name != "layers"),
        layers=tuple(layer.name for layer in surface.layers),
        has_benchmark=(project_root / BENCHMARK).is_file(),
        upstream=upstream,
        source=source,
        variants=tuple(variants),
    )


def fill_card(template_text: str, facts: CardFacts) -> str:
    """The card's text.

    Raises:
        CardError: the template is wrong or uses an unknown name, or the text still has a TODO.
    """
    from jinja2 import Environment, StrictUndefined, TemplateError

    environment = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - Markdown, from the project's own files
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        text = environment.from_string(template_text).render(asdict(facts))
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        place = f"CARD.md:{line}" if line else "CARD.md"
        hint = f"a card may use {', '.join(sorted(asdict(facts)))}"
        raise CardError(f"{place}: {error}", hint=hint) from error
    _refuse_unfinished(text)
    return text


def _refuse_unfinished(text: str) -> None:
    lines = [n for n, line in enumerate(text.splitlines(), 1) if UNFINISHED in line]
    if lines:
        listed = ", ".join(str(line) for line in lines)
        hint = "write those parts of CARD.md, or take them out"
        raise CardError(f"the filled card still says {UNFINISHED} (line {listed})", hint=hint)
