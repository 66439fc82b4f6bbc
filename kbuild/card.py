"""A kernel's card: its `CARD.md` template filled with facts read from the project.

Nothing is imported or executed: functions and layers are read off the syntax tree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kbuild.checks.readers.source import parse_source
from kbuild.errors import KbuildError

SOURCE_FOLDERS = ("torch-ext", "tvm-ffi-ext")
BENCHMARK = "benchmarks/benchmark.py"
LAYERS = "layers"
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
        CardError: the package's `__init__.py` does not parse.
    """
    package = _package_of(project_root, name.replace("-", "_"))
    public = public_names(package / "__init__.py") if package else ()
    return CardFacts(
        repo_id=repo_id,
        name=name,
        version=version,
        license=license.lower(),
        functions=tuple(entry for entry in public if entry != LAYERS),
        layers=_layer_names(package) if package and LAYERS in public else (),
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


def public_names(init: Path) -> tuple[str, ...]:
    """The names in a module's `__all__`, in order and once each; empty when it has none.

    Understands lists and tuples, annotations, sums, `+=`, `.append(...)` and `.extend(...)`.

    Raises:
        CardError: the file does not parse.
    """
    found: list[str] = []
    for statement in _tree_of(init).body:
        match statement:
            case ast.Assign(targets=targets, value=value) if any(map(_is_all, targets)):
                found = list(_strings(value))
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_all(target):
                found = list(_strings(value))
            case ast.AugAssign(target=target, op=ast.Add(), value=value) if _is_all(target):
                found.extend(_strings(value))
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=target), args=[value])):
                found.extend(_strings(value) if _is_all(target) else ())
    return tuple(dict.fromkeys(found))


def _refuse_unfinished(text: str) -> None:
    lines = [n for n, line in enumerate(text.splitlines(), 1) if UNFINISHED in line]
    if lines:
        listed = ", ".join(str(line) for line in lines)
        hint = "write those parts of CARD.md, or take them out"
        raise CardError(f"the filled card still says {UNFINISHED} (line {listed})", hint=hint)


def _package_of(root: Path, python_name: str) -> Path | None:
    folders = (root / folder / python_name for folder in SOURCE_FOLDERS)
    return next((folder for folder in folders if (folder / "__init__.py").is_file()), None)


def _tree_of(path: Path) -> ast.Module:
    try:
        return parse_source(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise CardError(f"{path.name} does not parse: {error}", hint="correct it first") from error


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "__all__"


def _strings(node: ast.expr) -> Iterable[str]:
    """String literals of a literal list, of a sum of lists, or a lone string."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            for element in elements:
                yield from _strings(element)
        case ast.Starred(value=value):
            yield from _strings(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _strings(left)
            yield from _strings(right)


def _layer_names(package: Path) -> tuple[str, ...]:
    """Public classes at the top of `layers/__init__.py` or `layers.py`, and what it re-exports."""
    files = (package / LAYERS / "__init__.py", package / f"{LAYERS}.py")
    file = next((candidate for candidate in files if candidate.is_file()), None)
    if file is None:
        return ()
    classes = [node.name for node in _tree_of(file).body if isinstance(node, ast.ClassDef)]
    return tuple(name for name in classes if not name.startswith("_")) or public_names(file)
