"""What the documentation promises exists, and what exists is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import tomli

from kbuild.cli import COMMANDS, all_commands, failure, find_command
from kbuild.cli.generate_docs import describe_command
from kbuild.project.variant import Variant
from kbuild.system import errors
from kbuild.system.errors import KbuildError

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
GENERATED = {
    ROOT / "docs" / "reference" / name for name in ("build-toml.md", "checks.md", "cli.md")
}
FENCED = re.compile(r"^ *```\w*\n.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"(?:^ *|&& |\$ |\()(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?kbuild (?P<words>[a-z-]+[^#|)&>\n]*)",
    re.MULTILINE,
)
INLINE_COMMAND = re.compile(r"`kbuild (?P<words>[a-z][^`|)&>\n]*)`")
SETUP = "python3 -m venv"


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text("utf-8")


def commands(text: str) -> list[list[str]]:
    """The kbuild command lines in a page: in shell blocks, and in code font in its text."""
    blocks = "\n".join(CODE.findall(text))
    matches = [*COMMAND.finditer(blocks), *INLINE_COMMAND.finditer(FENCED.sub("", text))]
    return [match["words"].split() for match in matches]


def linked_from(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text("utf-8"))}


def test_links_lead_somewhere():
    for page in PAGES:
        for target in LINK.findall(page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page}: {target}"


def test_commands_exist():
    flags = {
        verb.name: {flag for option in describe_command(verb).options for flag in option.flags}
        for verb in all_commands()
    }
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue  # of earlier releases, too
        for name, *rest in commands(page.read_text("utf-8")):
            verb = find_command(name)
            assert verb is not None, f"{page}: {name}"
            own = rest[: rest.index("--")] if "--" in rest else rest
            options = {word.strip("[].,").partition("=")[0] for word in own}
            unknown = {word for word in options if word.startswith("-")} - flags[verb.name]
            assert not unknown, f"{page}: kbuild {name} {' '.join(rest)}"


def test_lines_are_short():
    for page in PAGES:
        if page not in GENERATED and page.name != "CHANGELOG.md":
            lines = FENCED.sub("", page.read_text("utf-8")).splitlines()
            long = [line for line in lines if len(line) > 110 and not line.startswith("|")]
            assert long == [], page


def test_every_page_is_reachable():
    """From the first page, or from the index of its folder, without the site's navigation."""
    first = ROOT / "docs" / "index.md"
    for page in PAGES:
        if page.is_relative_to(ROOT / "docs") and page != first:
            indexes = [first, page.parent / "index.md"]
            assert any(page in linked_from(index) for index in indexes if index != page), page


def test_the_pages_are_read():
    """The tests of single pages look at something."""
    texts = [page.read_text("utf-8") for page in PAGES]
    assert len(PAGES) > 50
    assert sum(len(LINK.findall(text)) for text in texts) > 200
    assert sum(len(CODE.findall(text)) for text in texts) > 70
    lines = "\n".join("\n".join(CODE.findall(text)) for text in texts).splitlines()
    unread = [line for line in lines if re.match(r"(?:\S+ )?kbuild [a-z]", line)]
    assert len(unread) > 90
    assert [line for line in unread if not COMMAND.search(line)] == []


def test_the_navigation_has_every_page_once():
    navigation = read("mkdocs.yml").split("\nnav:\n")[1]
    listed = re.findall(r"^ +- (?:.+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_every_verb_and_option_is_documented():
    page = read("docs", "reference", "cli.md")
    for verb in COMMANDS:
        text = page.split("\n## Start")[0]
        names = [verb.name]
        for name in names:
            section = page.split(f"\n### {name}\n")[1].split("\n### ")[0]
            line = re.search(r"^It has all options of (.+)$", section, re.MULTILINE)
            names += re.findall(r"\[([a-z-]+)\]", line[1]) if line else []
            text += section
        for argument in describe_command(verb).arguments:
            assert f"`{argument.written}`" in text, verb.name


def test_exit_codes():
    rows = re.findall(
        r"^\| (\d+) \| (?:`(\w+)`)? ?\|", read("docs", "reference", "exit-codes.md"), re.MULTILINE
    )
    documented = {(int(code), kind) for code, kind in rows if kind}
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    actual = {(kind.code, kind.kind) for kind in kinds if issubclass(kind, KbuildError)}
    assert documented == actual
    codes = {int(code) for code, _ in rows}
    assert {0, failure.BUG, failure.INTERRUPTED, failure.PIPE_CLOSED} <= codes
    assert {129, 143} <= codes  # SIGHUP, SIGTERM


def test_variant_names():
    text = read("docs", "reference", "variants.md")
    names = re.findall(r"^\| `((?:torch|tvm)[\w-]*-[\w-]+)` \|", text, re.MULTILINE)
    assert len(names) == 7
    assert all(str(Variant.parse(name)) == name for name in names if "ffi01`" not in name)


def test_dependencies_are_explained():
    project = tomli.loads(read("pyproject.toml"))["project"]
    page, extras = read("docs", "contributing", "dependencies.md").split("Extras:")
    names = {re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]}
    assert set(re.findall(r"^\| ([\w-]+) \|", page, re.MULTILINE)) - {"package"} == names
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", extras, re.MULTILINE))
    assert rows.keys() == project["optional-dependencies"].keys()
    for extra, requirements in project["optional-dependencies"].items():
        own = {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements} - {"kbuild"}
        assert own <= set(re.findall(r"[\w.-]+", rows[extra])), extra


def test_the_readme_has_two_set_up_commands():
    lines = [line for line in read("README.md").splitlines() if line.startswith(SETUP)]
    assert len(lines) == 2
    assert "kbuild build examples/relu" in lines[0]
    assert ".venv/bin/pytest" in lines[1]


def test_ci_runs_what_the_readme_says():
    script = read(".ci", "run")
    assert "readme_command 'examples/relu'" in script
    assert "readme_command '.[dev]'" in script


FOR_OWN_PROCESSES = {
    *(
        "KBUILD_CXX",
        "KBUILD_HIPCC",
        "KBUILD_NVCC",
        "KBUILD_TILEIRAS",
    ),  # for the compile commands of a worker
    "TRITON_CACHE_DIR",  # for workers
    "CUTE_DSL_ARCH",  # for commands whose launches are recorded
    # Of CMake.
    *(f"KBUILD_{name}" for name in ("HIPIFY_DIR", "SOURCE_DIR", "VARIANT", "WRITES_METADATA")),
    *(f"KBUILD_PYTHON{name}" for name in ("", "_INCLUDE_DIR")),
    *(f"KBUILD_TORCH_{name}" for name in ("INCLUDE_DIRS", "LIBRARY_DIR", "VERSION")),
    *(f"KBUILD_TVM_FFI_{name}" for name in ("INCLUDE_DIRS", "LIBRARY_DIR")),
}
"""What kbuild sets for processes of its own, whatever the user says."""


def strings(node: ast.AST) -> set[str]:
    """The names of variables among a node's literals."""
    joined = (part for n in ast.walk(node) if isinstance(n, ast.JoinedStr) for part in n.values)
    parts = {id(part) for part in joined}
    constants = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and id(n) not in parts]
    return {n.value for n in constants if re.fullmatch("[A-Z_]*[A-Z]", str(n.value))}


def _last_name(node: ast.AST) -> str:
    """`b` of `a.b`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def variables_read(tree: ast.Module, constants: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The names that each access of an environment may read; empty where only a run shows it."""
    own = {
        target.id: strings(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    known = {**constants, **own}
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            names = {n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name)}
            listed = strings(node.iter).union(*(own.get(name, set()) for name in names))
            known[node.target.id] = known.get(node.target.id, set()) | listed
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            where, key = node.value, node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            where, key = node.comparators[0], node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            where = node.func if node.func.attr == "getenv" else node.func.value
            key = node.args[0]
        else:
            continue
        if _last_name(where).endswith(("environ", "getenv")):
            name = _last_name(key)
            yield strings(key) if isinstance(key, ast.Constant) else known.get(name, set())


def test_environment_variables():
    texts = [path.read_text("utf-8") for path in (ROOT / "kbuild").rglob("*.py")]
    # The others have no name of a variable and read none.
    trees = {
        text: ast.parse(text)
        for text in texts
        if re.search(r"environ|getenv|\"[A-Z_]*[A-Z]\"", text)
    }
    constants = {
        target.id: strings(node.value)
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    }
    reading = [tree for text, tree in trees.items() if re.search("environ|getenv", text)]
    used = set().union(*(names for tree in reading for names in variables_read(tree, constants)))
    assert used >= {"KBUILD_CACHE", "KBUILD_COMPILER_ID", "SOURCE_DATE_EPOCH", "HF_TOKEN"}
    named = (tree for text, tree in trees.items() if "KBUILD_" in text)
    used |= {name for tree in named for name in strings(tree) if re.match("KBUILD_[A-Z]", name)}
    assert len(used) > 60
    page = read("docs", "reference", "environment.md")
    missing = {name for name in used if f"`{name}`" not in page}
    assert sorted(missing) == sorted(FOR_OWN_PROCESSES)


STEP = re.compile(r"^\| `(kbuild/[\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)
"""A row of a reader's list: a file, and what to read in it."""


@pytest.mark.parametrize(("heading", "most"), [("A C++ kernel", 20), ("A Triton op", 25)])
def test_a_build_can_be_followed_through_few_files(heading, most):
    page = read("docs", "contributing", "follow-a-build.md")
    table = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    steps = STEP.findall(table)
    assert table.count("\n| `") == len(steps)
    assert 10 < len(dict(steps)) == len(steps) <= most
    for path, name in steps:
        named = ast.walk(ast.parse(read(path)))
        assert any(getattr(node, "name", "") == name for node in named), f"{path}: {name}"


SOURCES = sorted((ROOT / "kbuild").rglob("*.py"))
MANUAL_PAGE = re.compile(r"manual_page\(\s*['\"]([^'\"]+)")


def test_pages_that_messages_name_exist():
    named = {name for path in SOURCES for name in MANUAL_PAGE.findall(path.read_text("utf-8"))}
    assert "index.md" in named
    assert {name for name in named if not (ROOT / "docs" / name).is_file()} == set()


def test_messages_name_no_file_that_a_wheel_lacks():
    """Docstrings and comments may; what is printed has the address."""
    found = []
    texts = [path.read_text("utf-8") for path in SOURCES]
    for tree in (ast.parse(text) for text in texts if "docs/" in text):
        own = (ast.Module, ast.ClassDef, ast.FunctionDef)
        documented = {
            ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, own)
        }
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and text not in documented:
                found += re.findall(r"(?<![\w/])docs/[\w/-]+\.md", text)
    # What `update-build` and scripts write; `generate-docs` is for kbuild's own repository.
    assert [name for name in found if name != "docs/reference/cli.md"] == []
