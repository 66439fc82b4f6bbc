"""The built variants that a verb works on, and the interpreter that loads them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from kbuild.cli.context import Context
from kbuild.errors import UsageError
from kbuild.variant import Variant

METADATA = "metadata.json"


def add_variant(parser: ArgumentParser) -> None:
    """Declare `--variant`."""
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="GLOB",
        help="built variants by name, e.g. 'torch213-*-cpu-*' (repeatable)",
    )


def add_python(parser: ArgumentParser, what: str) -> None:
    """Declare `--python`."""
    parser.add_argument(
        "--python",
        type=Path,
        metavar="PROGRAM",
        help=f"interpreter that {what} (default: the one that builds use)",
    )


def add_load(parser: ArgumentParser) -> None:
    """Declare with what else kernels are loaded: `--also-python` and `--beside`."""
    parser.add_argument(
        "--also-python",
        type=Path,
        action="append",
        default=[],
        metavar="PROGRAM",
        help="another interpreter that must load them, with another Torch say (repeatable)",
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="DIR",
        help="another version's build or variant folder, which must work in the same process",
    )


@dataclass(frozen=True)
class Loading:
    """With what a variant is loaded."""

    python: Path | None = None
    others: tuple[Path, ...] = ()
    beside: Path | None = None

    def version_beside(self, variant: Path) -> Path | None:
        """The other version's folder of that variant, there or not; None when none was given."""
        if self.beside is None or is_variant(self.beside):
            return self.beside
        found = (path for path in discover(self.beside) if path.name == variant.name)
        return next(found, self.beside / variant.name)


def loading_of(args: Namespace, ctx: Context) -> Loading:
    """The interpreters and the other version that were asked for.

    Raises:
        ToolchainError: one of the interpreters is no Python.
        UsageError: `--beside` is no folder with variants.
    """
    beside = ctx.folder(args.beside) if args.beside else None
    if beside is not None and not is_variant(beside):
        discover(beside)
    others = tuple(chosen_python(given, ctx) for given in args.also_python)
    return Loading(chosen_python(args.python, ctx), others, beside)


def discover(folder: Path, globs: Sequence[str] = ()) -> tuple[Path, ...]:
    """The variant directories of a project, in name order.

    Looked for in this order, the first place that has any wins: the folder itself as one variant,
    `build/` below it, the folder, and a `result` link that Nix left. `result` comes last because
    it may be older than `build/`.

    Raises:
        UsageError: there is none, or none whose name matches.
    """
    places = (folder / "build", folder, folder / "result")
    found = (folder,) if is_variant(folder) else _first(places)
    if not found:
        looked = ", ".join(f"`{place}`" for place in places)
        raise UsageError(f"no built variants in {looked}", hint="`kbuild build` builds them")
    chosen = tuple(path for path in found if _matches(path.name, globs))
    if not chosen:
        names = ", ".join(path.name for path in found)
        raise UsageError(f"no built variant matches {' or '.join(globs)}", hint=f"built: {names}")
    return chosen


def is_variant(folder: Path) -> bool:
    """True when the folder has metadata, or a variant's name."""
    return folder.is_dir() and ((folder / METADATA).is_file() or variant_of(folder) is not None)


def variant_of(folder: Path) -> Variant | None:
    """The variant that the folder's name says, None when it says none."""
    try:
        return Variant.parse(folder.name)
    except ValueError:
        return None


def chosen_python(given: Path | None, ctx: Context) -> Path:
    """The interpreter for loading a kernel: the one asked for, else the one that builds use.

    Raises:
        ToolchainError: the one that was asked for is no Python.
    """
    from kbuild.toolchains.facts import FactCache
    from kbuild.toolchains.host import choose_python

    asked = given if given is None or len(given.parts) == 1 else ctx.path(given)
    facts = choose_python(asked, FactCache(ctx.cache), ctx.runner)
    return Path(facts["python"]["executable"])


def _first(places: Sequence[Path]) -> tuple[Path, ...]:
    return next((found for place in places if (found := tuple(_below(place)))), ())


def _below(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (
            path
            for path in sorted(place.iterdir())
            if not path.name.startswith(".") and is_variant(path)
        )


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
