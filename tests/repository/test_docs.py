"""What the documentation promises exists, and what exists is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild import errors
from kbuild.cli import COMMANDS, failure, find_command
from kbuild.cli.generate_docs import describe_command
from kbuild.errors import KbuildError
from kbuild.variant import Variant

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
GENERATED = {
    ROOT / "docs" / "reference" / name for name in ("build-toml.md", "checks.md", "cli.md")
}
FENCED = re.compile(r"^ *```\w*\n.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"(?:^|&& |\$ |\()(?:\.venv/bin/)?kbuild (?P<words>[a-z-]+[^#|)&>\n]*)", re.MULTILINE
)
SETUP = "python3 -m venv"


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text("utf-8")


def commands(text: str) -> list[list[str]]:
    """The kbuild command lines in a page's shell blocks."""
    blocks = "\n".join(CODE.findall(text))
    return [match["words"].split() for match in COMMAND.finditer(blocks)]


def linked_from(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text("utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
class TestPages:
    def test_links_lead_somewhere(self, page):
        for target in LINK.findall(page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).exists(), target

    def test_commands_exist(self, page):
        for name, *rest in commands(page.read_text("utf-8")):
            verb = find_command(name)
            assert verb is not None, name
            known = {flag for option in describe_command(verb).options for flag in option.flags}
            own = rest[: rest.index("--")] if "--" in rest else rest
            unknown = {word.partition("=")[0] for word in own if word.startswith("-")} - known
            assert not unknown, f"kbuild {name} {' '.join(rest)}"

    def test_lines_are_short(self, page):
        if page in GENERATED or page.name == "CHANGELOG.md":
            return
        lines = FENCED.sub("", page.read_text("utf-8")).splitlines()
        assert [line for line in lines if len(line) > 110 and not line.startswith("|")] == []

    def test_is_reachable(self, page):
        """From the first page, or from the index of its folder, without the site's navigation."""
        if page.is_relative_to(ROOT / "docs") and page != ROOT / "docs" / "index.md":
            indexes = [ROOT / "docs" / "index.md", page.parent / "index.md"]
            assert any(page in linked_from(index) for index in indexes if index != page)


def test_the_navigation_has_every_page_once():
    navigation = read("mkdocs.yml").split("\nnav:\n")[1]
    listed = re.findall(r"^ +- (?:.+: )?([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("verb", COMMANDS, ids=lambda verb: verb.name)
def test_every_verb_and_option_is_documented(verb):
    page = read("docs", "reference", "cli.md")
    section = page.split(f"\n### {verb.name}\n")[1].split("\n### ")[0]
    for argument in describe_command(verb).arguments:
        assert f"`{argument.written}`" in section + page.split("\n## Start")[0]


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
    assert {failure.HUNG_UP, failure.TERMINATED} <= codes


def test_variant_names():
    text = read("docs", "reference", "variants.md")
    names = re.findall(r"^\| `((?:torch|tvm)[\w-]*-[\w-]+)` \|", text, re.MULTILINE)
    assert len(names) == 7
    assert all(str(Variant.parse(name)) == name for name in names if "ffi01`" not in name)


def test_dependencies_are_explained():
    project = read("pyproject.toml").split("dependencies = [")[1].split("]")[0]
    names = set(re.findall(r'"([a-z0-9_-]+)', project))
    page = read("docs", "contributing", "dependencies.md").split("Extras:")[0]
    assert set(re.findall(r"^\| ([a-z0-9_-]+) \|", page, re.MULTILINE)) - {"package"} == names


def test_the_readme_has_two_set_up_commands():
    lines = [line for line in read("README.md").splitlines() if line.startswith(SETUP)]
    assert len(lines) == 2
    assert "kbuild build examples/relu" in lines[0]
    assert ".venv/bin/pytest" in lines[1]


def test_ci_runs_what_the_readme_says():
    script = read(".ci", "run")
    assert "readme_command 'examples/relu'" in script
    assert "readme_command '.[dev]'" in script


def test_environment_variables():
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "kbuild").rglob("*.py"))
    used = set(re.findall(r"environ(?:\.get\(|\[)\"([A-Z_]+)\"", sources))
    constants = re.findall(r"^[A-Z_]+ = \"(KBUILD_[A-Z_]*[A-Z])\"", sources, re.MULTILINE)
    assert len(used) > 5
    assert len(constants) > 5
    used |= set(constants)
    page = read("docs", "reference", "environment.md")
    assert {name for name in used if f"`{name}`" not in page} == set()
