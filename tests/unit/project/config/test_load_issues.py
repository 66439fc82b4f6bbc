"""Issues that are found after the file was loaded, as a build finds them."""

from __future__ import annotations

from kbuild.project.config.issue import Issue
from kbuild.project.config.load import locate_issues
from kbuild.system.sourcetree import SourceTree

TEXT = """\
[kernel.k]
src = ["k.py"]

[[kernel.k.op]]
args = { a = "x" }
"""


def test_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build.toml").write_text(TEXT)
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
