"""What is known of a DSL is in its module and its worker: no other module of kbuild names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kbuild.ops.language import LANGUAGES

PACKAGE = Path(__file__).parents[2] / "kbuild"
NAMES = sorted({name for one in LANGUAGES for name in (one.name, *one.distributions)})
_NAME = re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, NAMES))})(?![a-z])", re.IGNORECASE)
_ANYWHERE = re.compile("|".join(map(re.escape, NAMES)), re.IGNORECASE)
_TORCH = re.compile(
    r"(?:wrap|capture)_triton|(?:torch\._library\.)?triton(?:_op)?"
    r"|utils\._triton\.has_triton(?:_package)?"
)
"""Torch's own functions for Triton kernels in a model, in lists of functions of Torch."""
EXCEPTIONS = {
    "plugins/capture/languages.py": "says which languages it captures, and as what",
    "plugins/capture/questions.py": "says which functions of Triton a wrapper may not call",
    "plugins/capture/worker/calls.py": "knows functions of Triton that a wrapper may call",
    "plugins/capture/worker/differentiation.py": "knows which classes are Triton's own",
    "plugins/capture/worker/imports.py": "stands in for Triton while modules are imported",
    "plugins/capture/worker/launches.py": "records Triton's launches while an author's Python runs",
    "plugins/capture/worker/printer.py": "its hint names functions of Triton",
    "plugins/capture/worker/request.py": "has a driver of Triton for DSLs that write Triton",
    "plugins/capture/worker/recorded_values.py": "takes constants of Triton for what they are",
    "plugins/capture/worker/replacements.py": "stands in for Triton while an author's Python runs",
    "plugins/capture/worker/number_functions.py": "its messages name functions of Triton for sizes",
    "plugins/capture/worker/stores.py": "reads the source of an author's kernels",
    "plugins/capture/worker/trace.py": "stands in for Triton while an author's Python runs",
    "plugins/migrate/cli.py": "its help names what it takes over",
    "plugins/inline/inline.py": "`triton_sources` is an argument of `load_inline`",
    "plugins/inline/build.py": "`triton_captures` is an argument of `load_inline`",
    "plugins/inline/project.py": "`triton_sources` is an argument of `load_inline`",
    "plugins/inline/request.py": "`triton_sources` is an argument of `load_inline`",
    "plugins/migrate/project.py": "packages of Triton are one kind that it takes over",
    "plugins/migrate/sources.py": "packages of Triton are one kind that it takes over",
    "checks/probe_process.py": "variables of a user that reach the process in which a kernel loads",
}
TORCH_FUNCTIONS = ("checks/ops.py", "dsl/worker/device.py", "dsl/worker/torch_stub.py")
DATA = {
    "checks/data/modules.json": "the modules that the `kernels` client lets a kernel import",
    "checks/data/symbols.json": "namespaces of C++: CUTLASS has one that is called `cute`",
    "project/config/python_dependencies.toml": "the dependencies that the `kernels` client knows",
}


def is_of_a_dsl(path: Path) -> bool:
    """True of `dsl/languages/triton/...`, `dsl/worker/triton_hooks.py` and the like."""
    own = "|".join(one.name for one in LANGUAGES)
    place = path.relative_to(PACKAGE).as_posix()
    return bool(
        re.match(
            rf"(?:dsl/(?:worker|languages)|plugins/capture(?:/worker)?)/(?:{own})(?:_\w+)?(?:\.py$|/)",
            place,
        )
    )


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every name, and of every string that is no docstring."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            if id(node) not in prose:
                value = node.value
                yield node.lineno, value if isinstance(value, str) else value.decode("latin-1")
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.keyword, ast.arg)):
            name = node.arg if isinstance(node, (ast.keyword, ast.arg)) else node.name
            yield node.lineno, name or ""
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.alias):
            yield node.lineno, node.name


def named(text: str) -> list[str]:
    """The DSLs in a text, also in camel case."""
    return _NAME.findall(f"{text} {re.sub(r'(?<=[a-z])(?=[A-Z])', '_', text)}")


def test_only_exceptions_name_a_dsl() -> None:
    lines: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place, source = path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8")
        if is_of_a_dsl(path) or not _ANYWHERE.search(source):
            continue
        for line, text in texts(ast.parse(source)):
            if named(text) and not (place in TORCH_FUNCTIONS and _TORCH.fullmatch(text)):
                lines.setdefault(place, []).append(f"{line}: {text!r}")
    assert {place: said for place, said in lines.items() if place not in EXCEPTIONS} == {}
    assert {*EXCEPTIONS} - {*lines} == set()


def test_no_data_names_a_dsl() -> None:
    files = (path for path in PACKAGE.rglob("*.*") if path.suffix in {".toml", ".json"})
    foreign = (path for path in files if not is_of_a_dsl(path))
    found = {path.relative_to(PACKAGE).as_posix() for path in foreign if named(path.read_text())}
    assert found == {*DATA}


def test_names_are_found() -> None:
    assert {*NAMES} >= {"cute", "ninetoothed", "nvidia-cutlass-dsl", "tilelang", "triton"}
    source = """import kbuild.dsl.languages.triton
if a == "cute": f(CUTE_PIN, b"TileLang", CuteExport, execute)
"""
    assert sum(bool(named(text)) for _, text in texts(ast.parse(source))) == 5
