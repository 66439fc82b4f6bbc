"""Problems, also later ones, point at the line where the key or the list element is written."""

from __future__ import annotations

import string

import pytest
import tomli
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbuild.project.config.issue import Issue
from kbuild.project.config.load import locate_issues
from kbuild.project.config.locate import LineIndex
from kbuild.system.sourcetree import SourceTree

TEXT = '''\
# a comment with [brackets] = "and quotes
top = 1
[general]
name = "a # not a comment"
backends = [
    "cpu",  # the first
    # between
    "cuda", "rocm",

    "xpu"
]
"quoted key" = 1
'literal' = """
several
[lines]
""""
hub.repo-id = "o/n"
hub . "branch" = 'x'
deps = [{ a = 1 }, { b = [
    1, 2,
    3] }]

[general.cuda]
minver = "12.8"
text = \'\'\'
= [x]\'\'\'

[[table]]
x = 1

[[table]]
x = 2
[table.inner]
y = 3
[ kernel . "a.b" ]
src = []
'''


@pytest.mark.parametrize(
    ("path", "is_about_key", "marked"),
    [
        (("top",), False, "1"),
        (("top",), True, "top"),
        (("general",), False, "[general]"),
        (("general", "name"), False, '"a # not a comment"'),
        (("general", "backends"), False, "backends"),
        (("general", "backends", 2), False, '"rocm"'),
        (("general", "quoted key"), True, '"quoted key"'),
        (("general", "literal"), False, "'literal'"),
        (("general", "hub", "branch"), False, "'x'"),
        (("general", "hub", "branch"), True, 'hub . "branch"'),
        (("general", "deps", 0, "a"), False, "1"),
        (("general", "deps", 0), False, "{ a = 1 }"),
        (("general", "absent"), False, "[general]"),
        (("table", 1), False, "[[table]]"),
        (("table", 1, "absent", "x"), False, "[[table]]"),
        (("kernel", "a.b"), False, '[ kernel . "a.b" ]'),
        (("kernel", "a.b", "src"), False, "[]"),
    ],
)
def test_spans(path, is_about_key, marked):
    span = LineIndex(TEXT).span(path, is_about_key=is_about_key)
    assert span.source == TEXT.splitlines()[span.line - 1]
    assert span.source[span.column - 1 : span.column - 1 + span.length] == marked


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("general",), 3),
        (("general", "name"), 4),
        (("general", "backends"), 5),
        (("general", "backends", 0), 6),
        (("general", "backends", 1), 8),
        (("general", "backends", 2), 8),
        (("general", "backends", 3), 10),
        (("general", "quoted key"), 12),
        (("general", "literal"), 13),
        (("general", "hub"), 17),
        (("general", "hub", "repo-id"), 17),
        (("general", "hub", "branch"), 18),
        (("general", "deps", 0, "a"), 19),
        (("general", "deps", 1, "b"), 19),
        (("general", "deps", 1, "b", 1), 20),
        (("general", "deps", 1, "b", 2), 21),
        (("general", "cuda"), 23),
        (("general", "cuda", "minver"), 24),
        (("table", 0, "x"), 29),
        (("table", 1), 31),
        (("table", 1, "x"), 32),
        (("table", 1, "inner", "y"), 34),
        (("kernel",), 35),
        (("kernel", "a.b", "src"), 36),
    ],
)
def test_line_of(path, line):
    tomli.loads(TEXT)
    assert path in LineIndex(TEXT)
    assert LineIndex(TEXT).of(path) == line


def test_a_table_is_where_its_own_header_is():
    lines = LineIndex("[a.b]\nx = 1\n[a]\ny = 2\n")
    assert lines.of(("a",)) == 3
    assert lines.of(("a", "b")) == 1


keys = st.text(st.sampled_from(string.ascii_letters + string.digits + "-_ .\"'é\n"), max_size=6)
values = st.recursive(
    st.text(max_size=12) | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def paths_in(value, path=()):
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list)):
            yield from paths_in(item, (*path, key))
        else:
            yield (*path, key)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(keys, values, max_size=5))
def test_every_path_of_any_document_is_found(data):
    text = tomlkit.dumps(data)
    lines = LineIndex(text)
    for path in paths_in(tomli.loads(text)):
        assert path in lines, f"{path} in {text!r}"
        assert 1 <= lines.of(path) <= text.count("\n") + 1


LOADED = """\
[kernel.k]
src = ["k.py"]

[[kernel.k.op]]
args = { a = "x" }
"""


def test_lines_of_a_loaded_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.toml").write_text(LOADED)
    issues = [
        Issue(("kernel", "k", "op", 0, "args", "a"), "has no parameter"),
        Issue(("kernel", "k", "op", 0, "grid", 1), "is unknown", "a hint"),
    ]
    assert [str(problem) for problem in locate_issues(issues, SourceTree(tmp_path))] == [
        """\
build.toml:4: kernel.k.op[0].grid: is unknown
    [[kernel.k.op]]
    ^^^^^^^^^^^^^^^
  hint: a hint""",
        """\
build.toml:5: kernel.k.op[0].args.a: has no parameter
    args = { a = "x" }
                 ^^^""",
    ]
