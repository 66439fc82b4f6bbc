"""What `kbuild build` says, and what it does not say again."""

from __future__ import annotations

import shutil

import pytest

from kbuild.pipeline.result import BuildResult

WARNING = "no `__all__`"


@pytest.mark.full
def test_a_warning_about_the_project_is_printed_by_one_build(kbuild, demo):
    init = demo / "torch-ext" / "demo" / "__init__.py"
    init.write_text("one = 1\n")
    assert WARNING in kbuild("build", "demo").err
    for _ in range(2):  # unchanged
        assert WARNING not in kbuild("build", "demo").err
    init.write_text("one = 2\n")
    answer = kbuild("build", "demo")
    assert "built" in answer.err
    assert WARNING not in answer.err
    for _ in range(2):
        assert WARNING in kbuild("check-config", "demo").err
    shutil.rmtree(demo / ".kbuild")
    assert WARNING in kbuild("build", "demo").err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], True),
        (["--dev"], False),
        (["--dev", "--backend", "cuda"], False),
        (["--dev", "--torch", "2.13"], True),
        (["--dev", "--variant", "torch-*"], True),
    ],
)
def test_what_is_skipped_is_said_where_it_was_asked_for(
    kbuild, demo, monkeypatch, options, expected
):
    results = (BuildResult("torch-cuda", "skipped", "needs another machine"),)
    monkeypatch.setattr("kbuild.cli.build._build", lambda *_: results)
    answer = kbuild("build", "demo", *options)
    assert ("skipped, needs another machine" in answer.err) is expected
