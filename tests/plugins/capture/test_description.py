from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kbuild.plugins.capture.description import (
    CaptureSection,
    Declaration,
    description_text,
    read_declaration,
    read_description,
    staleness,
)
from kbuild.plugins.capture.function_digests import source_digests
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import ConfigError

X = {"shape": ["M", "N"], "dtypes": ["float16", "float32"]}
SOURCE = """
def helper(x):
    return x


def norm(x):
    return helper(x)


def other(x):
    return x
"""


def read(table: dict[str, Any]) -> tuple[Declaration | None, list[tuple[str, str, str]]]:
    collector = IssueCollector(("kernel", "ops", "capture", 0))
    declaration = read_declaration(CaptureSection.model_validate(table), collector)
    return declaration, [
        (".".join(map(str, i.path[4:])), i.message, i.hint) for i in collector.issues
    ]


def declared(**more: Any) -> Declaration:
    declaration, issues = read({"function": "ops.norm:norm", "arguments": {"x": X}, **more})
    assert issues == []
    assert declaration is not None
    return declaration


def test_arguments_are_what_their_values_are() -> None:
    declaration = declared(
        arguments={
            "x": X,
            "bias": {"shape": ["N"], "dtypes": "x", "optional": True},
            "w": {"shape": ["N"], "dtypes": "float32"},
            "eps": 1e-6,
            "groups": 2,
            "flag": False,
            "mode": "mean",
            "kind": {"choices": ["a", "b"], "default": "b"},
            "level": {"choices": [1, 2]},
            "process_group": {"value": "None"},
        },
        sizes={"N": {"max": 4096}, "M": {"min": 2}},
        backward=False,
    )
    assert declaration.name == "norm"
    assert declaration.arguments == {
        "x": X,
        "bias": {"shape": ["N"], "dtypes": "x", "optional": True},
        "w": {"shape": ["N"], "dtypes": ["float32"]},
        "eps": {"kind": "float", "example": 1e-6},
        "groups": {"kind": "int", "example": 2},
        "flag": {"choices": [True, False]},
        "mode": {"choices": ["mean"]},
        "kind": {"choices": ["a", "b"]},
        "level": {"choices": [1, 2]},
        "process_group": {"value": None},
    }
    assert declaration.defaults == {
        "bias": "None", "eps": "1e-06", "groups": "2", "flag": "False", "mode": '"mean"',
        "kind": '"b"',
    }  # fmt: skip
    assert declaration.sizes == {"N": (0, 4096), "M": (2, 2**31 - 1)}
    assert not declaration.backward


@pytest.mark.parametrize(
    ("table", "place", "message", "hint"),
    [
        ({"function": "norm"}, "function", "`norm` names no function", "my_ops.norm:rms_norm"),
        ({"arguments": {"eps": 1.0}}, "", "has no tensor among its `arguments`", "shape"),
        ({"arguments": {"x": X, "y": [1]}}, "arguments.y", "must be a table, a number", ""),
        ({"arguments": {"x": X, "y": {}}}, "arguments.y", "has neither `shape`", ""),
        ({"arguments": {"x": {"shape": ["M"]}}}, "arguments.x", "has no `dtypes`", "float16"),
        ({"arguments": {"x": {**X, "shape": 3}}}, "arguments.x.shape", "must be a list", ""),
        ({"arguments": {"x": {**X, "shape": [[]]}}}, "arguments.x.shape", "list of names", ""),
        ({"arguments": {"x": {**X, "dtypes": 3}}}, "arguments.x.dtypes", "a list of dtypes", ""),
        ({"arguments": {"x": {**X, "dtypes": [["half"]]}}}, "arguments.x.dtypes", "a list of", ""),
        ({"arguments": {"x": X, "y": {"choices": 3}}}, "arguments.y.choices", "a list", ""),
        ({"arguments": {"x": X, "y": {"choices": []}}}, "arguments.y.choices", "a list of", ""),
        (
            {"arguments": {"x": X, "y": {"choices": [1], "default": 2}}},
            "arguments.y",
            "`2` is not one of the choices",
            "",
        ),
        (
            {"arguments": {"x": X, "y": {"worth": 2, "value": 1}}},
            "arguments.y.worth",
            "unknown key",
            "",
        ),
        (
            {"arguments": {"x": {**X, "size": 2}}},
            "arguments.x.size",
            "unknown key",
            "allowed: `contiguous`, `dtypes`, `optional`, `shape`",
        ),
        (
            {"arguments": {"x": {**X, "dtypes": ["half"]}}},
            "arguments.x.dtypes",
            "`half` is neither a dtype nor another argument",
            "",
        ),
        (
            {"arguments": {"x": {**X, "dtypes": "y"}}},
            "arguments.x.dtypes",
            "`y` is neither a dtype nor another argument",
            "",
        ),
        (
            {"sizes": {"N": {"min": -1}}},
            "sizes.N",
            "from -1 to 2147483647 is no range of sizes",
            "",
        ),
        ({"sizes": {"N": {"min": 9, "max": 8}}}, "sizes.N", "from 9 to 8 is no range", ""),
    ],
)
def test_bad_declarations(table: dict[str, Any], place: str, message: str, hint: str) -> None:
    declaration, issues = read({"function": "ops.norm:norm", "arguments": {"x": X}, **table})
    assert declaration is None
    ((where, said, remedy),) = issues
    assert where == place
    assert message in said
    assert hint in remedy


def text(declaration: Declaration) -> str:
    wrapper = {"ops": [], "forward": {}}
    return description_text(declaration, wrapper, "ops/norm.py", {"ops/norm.py": SOURCE}, ["note"])


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "3", '{"format": 1}', '{"format": 2}'])
def test_other_files_are_refused(content: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_description(content, "captured/ops.norm.json")
    (problem,) = caught.value.problems
    assert problem.file == "captured/ops.norm.json"
    assert problem.message == "does not describe a captured function"
    assert problem.hint == "write it with `kbuild capture`"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("# none", ""), ""),
        (("def other(x):\n    return x", "def other(x):\n    return -x"), ""),
        (("def helper(x):\n    return x", "def helper(x):\n    return -x"), "has changed"),
        (("def norm", "def norms"), "has changed"),
    ],
)
def test_changed_sources_are_stale(change: tuple[str, str], reason: str) -> None:
    declaration = declared()
    data = json.loads(text(declaration))
    assert staleness(declaration, data, source_digests({"ops/norm.py": SOURCE})) == ""
    stale = staleness(declaration, data, source_digests({"ops/norm.py": SOURCE.replace(*change)}))
    assert reason in stale
    assert bool(stale) == bool(reason)


def test_changed_declarations_are_stale() -> None:
    declaration = declared()
    data = json.loads(text(declaration))
    texts = source_digests({"ops/norm.py": SOURCE})
    changed = replace(declaration, sizes={"N": (1, 8)})
    assert "what `build.toml` says of `ops.norm:norm`" in staleness(changed, data, texts)
    assert "has changed" in staleness(declaration, data, source_digests({}))
