"""Imports point one way: a module knows the layers below its own, never one above."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# From the top down; a module may import its own part and the layers below. A part of a part has a
# layer of its own where it is named: ops are read with the models of `build.toml`, whose rules ask
# about ops in turn, and a plan asks a language, as it asks a backend, what is compiled for.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("pipeline", "diagnosis"),
    ("versions",),
    ("mirror",),
    ("hub", "signing", "card"),
    ("provenance", "nix", "tune", "scaffold", "comparison"),
    ("package", "static.headers", "static.includes", "static.types"),
    ("build",),
    ("checks", "advice", "languages"),
    ("toolchains",),
    ("generate", "digest"),
    ("planning",),
    ("selection", "identity", "metadata", "plan", "command_options"),
    ("project",),
    ("languages.base", "languages.expand", "languages.image", "languages.unit"),
    ("backends", "frameworks"),
    ("ops",),
    ("matrix", "config"),
    ("public_api",),
    ("sources", "store", "variant", "git", "binary", "static"),
    ("services", "sourcetree", "code_digest", "licences", "registry", "rendering"),
    ("ui",),
    ("runtime",),
    ("errors", "version", "progress", "__init__"),
)
RANK = {name: len(LAYERS) - at for at, names in enumerate(LAYERS) for name in names}
MODULES = sorted((ROOT / "kbuild").rglob("*.py"))


def part_of(path: Path) -> str:
    return ranked(path.relative_to(ROOT / "kbuild").with_suffix("").parts)


def ranked(names: Sequence[str]) -> str:
    """The part that has a rank: `languages.spec`, or else the first name."""
    both = ".".join(names[:2])
    return both if both in RANK else names[0]


def is_akin(name: str, other: str) -> bool:
    """True of parts of one package."""
    return name.split(".", maxsplit=1)[0] == other.split(".", maxsplit=1)[0]


def imports(path: Path) -> Iterator[str]:
    """The parts of kbuild that a module imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "kbuild":
            names = [f"kbuild.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "kbuild" and rest and not rest.startswith("__version__"):
                yield ranked(rest.split("."))


def test_every_module_has_a_layer():
    assert {part_of(path) for path in MODULES} <= set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_arrow_turns_back(path):
    own = part_of(path)
    above = {name for name in imports(path) if RANK[name] > RANK[own]}
    assert not above, f"{own} is below {', '.join(sorted(above))}"
    beside = {name for name in imports(path) if RANK[name] == RANK[own] and not is_akin(name, own)}
    assert not beside, f"{own} stands beside {', '.join(sorted(beside))}"


@pytest.mark.parametrize("heavy", ["torch", "kernels"])
def test_heavy_packages_are_never_imported(heavy):
    """Not by kbuild itself: they are located, and run in other processes."""
    for path in MODULES:
        if "probes" in path.parts:  # scripts for those other processes
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert heavy not in {name.split(".")[0] for name in names}, path


def test_only_the_hub_imports_its_client():
    """And only when it is used: the extra need not be installed, and the import takes a second."""
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        late = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if "huggingface_hub" in {name.split(".")[0] for name in names}:
                assert part_of(path) == "hub", path
                assert id(node) in late, path


# Parts that are about one vendor's devices: their file formats, toolkits and compilers.
OF_VENDORS = (
    "backends", "binary", "languages", "toolchains/experimental", "toolchains/wheels",
    "toolchains/cuda_toolkits.py", "toolchains/rocm.py", "tune",
)  # fmt: skip
# What stands there is no backend's name, or is how somebody else writes it.
OTHER_WORDS = {
    "card/benchmarks.py": {"cpu"},  # what a benchmark's machine is described by
    "checks/policies.py": {"cpu"},  # a key of manylinux's data
    "cli/abi_advice.py": {"cpu"},  # seconds of the processor
    "config/load.py": {"tpu"},  # a table that editions before 5 lack
    "ops/tuned_tables.py": {"cpu"},  # a device that tables were measured on
    "variant.py": {"cuda", "cann"},  # the client's spelling in names of folders
}


def named_backends(node: ast.AST, names: set[str]) -> set[str]:
    """Backends that a table, a comparison, a pattern or a constant holds as literals."""
    if isinstance(node, ast.Compare):
        inner = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
    elif isinstance(node, ast.Dict):
        inner = [key for key in node.keys if key is not None]
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        inner = node.elts
    elif isinstance(node, (ast.MatchValue, ast.Assign, ast.AnnAssign)):
        inner = [node.value]
    else:
        inner = []
    return {n.value for n in inner if isinstance(n, ast.Constant) and n.value in names}


@pytest.mark.parametrize(
    "code",
    [
        'backend == "cuda"',
        'x in ("cpu", "rocm")',
        'TABLE = {"xpu": 1}',
        'ABLE = ["metal"]',
        'HOST = "cpu"',
        'match x:\n    case "tpu": pass',
    ],
)
def test_a_named_backend_is_seen(code: str) -> None:
    names = {"cpu", "cuda", "metal", "rocm", "tpu", "xpu"}
    assert any(named_backends(node, names) for node in ast.walk(ast.parse(code)))


def test_the_core_names_no_backend() -> None:
    """Adding a backend is one new file: no table of backends and no comparison elsewhere."""
    from kbuild.backends import BACKENDS

    names, known = set(BACKENDS.names()), {path: set(words) for path, words in OTHER_WORDS.items()}
    core = [path for path in MODULES if not _is_below(path, OF_VENDORS)]
    assert len(core) > 200
    for path in core:
        place = path.relative_to(ROOT / "kbuild").as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            found = named_backends(node, names)
            strange = found - OTHER_WORDS.get(place, set())
            assert not strange, f"{place}:{node.lineno} names {', '.join(sorted(strange))}"
            known.get(place, set()).difference_update(found)
    assert not any(known.values()), f"exceptions that nothing needs: {known}"


def _is_below(path: Path, parts: Sequence[str]) -> bool:
    own = path.relative_to(ROOT / "kbuild")
    return any(own.is_relative_to(part) for part in parts)


WORKERS = ROOT / "kbuild" / "languages" / "worker"


def test_class_names_are_unique():
    """Except for `Compiler`: the class of every worker is found by that name."""
    places: dict[str, list[Path]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path)
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    workers = shared.pop("Compiler")
    assert all(WORKERS in path.parents for path in workers)
    assert not shared
