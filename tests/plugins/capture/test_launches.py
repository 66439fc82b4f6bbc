"""Captured launches: files, the ops that they become, digests of what they were captured from."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from kbuild.ops.expand import expand
from kbuild.ops.section import read_section
from kbuild.ops.unit import ImageTarget
from kbuild.plugins.capture.function_digests import SourceDigests
from kbuild.plugins.capture.launches import (
    CapturedFunction,
    CapturedLaunch,
    CapturedLaunches,
    launch_ops,
    module_of,
    packaged_module,
    parse_captured,
)
from kbuild.system.errors import ConfigError

KINDS = {"x": "*float16", "b": "none", "n": "int", "wide": "int64", "eps": "float", "flag": "bool"}


def launch(block: int = 64, *, more: Any = None, assumptions: Any = (), **changes: Any) -> Any:
    data = {"arguments": KINDS, "constants": {"BLOCK": block, **(more or {})}, "options": {}}
    return {**data, "assumptions": list(assumptions), **changes}


def kernel(source: str, *launches: CapturedLaunch, **more: Any) -> CapturedFunction:
    return CapturedFunction(**{"source": source, "function": "k", "launches": launches, **more})


def ops_of(*launches: Any, name: str = "k"):
    """The ops as sections are read, and their units for one arch."""
    function = kernel("k.py", *map(CapturedLaunch.model_validate, launches), function=name)
    (group,) = launch_ops("s", [function])
    section = {"language": "triton", "toolchain": "triton==3.9.0", "src": ["k.py"]}
    reading = read_section("s", {**section, "op": list(group.ops)})
    assert [issue for issue in reading.issues if issue.severity == "error"] == []
    units = [unit for op in reading.ops for unit in expand(op, [ImageTarget.parse("sm_80")])]
    return reading.ops, units, group.functions[0]["launches"]


def test_launches_with_the_same_arguments_are_candidates_of_one_op() -> None:
    more = {"ACT": {"string": "gelu"}, "NONE": None}
    first = launch(64, more=more, options={"num_warps": 8})
    ops, units, entries = ops_of(first, launch(128, more=more))
    (op,) = ops
    assert str(op.schema) == (
        "launch_s_k_0(int launch_form, Tensor(set0!) arg0, SymInt arg2, SymInt arg3, float arg4, "
        "bool arg5, SymInt grid_0, SymInt grid_1, SymInt grid_2) -> ()"
    )
    assert [(entry["op"], entry["form"]) for entry in entries] == [
        ("launch_s_k_0", 0),
        ("launch_s_k_0", 1),
    ]
    by_form = [dict(c.constants) for c in op.launches[0].candidates]
    assert [entry["constants"]["BLOCK"] for entry in entries] == [c["BLOCK"] for c in by_form]
    assert by_form[0] == {"BLOCK": by_form[0]["BLOCK"], "ACT": "gelu", "NONE": None}
    assert len(units) == 4
    assert {unit.int64 for unit in units} == {("wide",)}


def test_descriptors() -> None:
    kinds = {"x": {"tensor": "float32", "block": [4, 8], "padding": "nan"}, "y": "*float32"}
    (op,), units, _ = ops_of(launch(arguments=kinds))
    assert dict(op.launches[0].args)["x"].kind == "descriptor"
    assert {dict(unit.dtypes)["arg0"] for unit in units} == {"float32"}
    kinds["x"] |= {"layout": {"swizzle_byte_width": 64}}
    (op,), _, _ = ops_of(launch(arguments=kinds))
    assert dict(op.launches[0].args)["x"].layout == (("swizzle_byte_width", 64),)


def test_images_assume_what_held_in_calls() -> None:
    both, one = {"divisible": ["n", "wide"]}, {"divisible": ["n"], "ones": ["wide"]}
    (op,), units, _ = ops_of(launch(assumptions=[{}, both]), launch(128, assumptions=[both, one]))
    first, second, last = (str(each.when) for each in op.launches)
    pointers = "address(arg0) % 16 == 0"
    aligned = f"arg2 % 16 == 0 and arg3 % 16 == 0 and {pointers}"
    assert first == f"arg2 % 16 == 0 and arg3 == 1 and {pointers} and (launch_form == 0)"
    assert second == f"not ({first}) and {aligned}"
    assert last == f"not ({first}) and not ({aligned})"
    assert [each.divisible for each in op.launches] == [(("n",),), (("n", "wide"),), ((),)]
    assert [each.ones for each in op.launches] == [("wide",), (), ()]
    assert [len(each.candidates) for each in op.launches] == [1, 2, 2]
    assert Counter(unit.aligned for unit in units) == {True: 1 + 2 + 2, False: 2}


def test_a_file_is_the_same_whatever_was_recorded_first() -> None:
    more = {"LIMIT": float("inf")}
    launches = [CapturedLaunch.model_validate(launch(block, more=more)) for block in (128, 64, 128)]
    functions = [
        kernel("b.py", launches[0]),
        kernel("a.py", *launches[1:], digest="digest"),
        kernel("b.py", tuned=({"device": "H", "key": [1], "config": {}},)),
    ]
    text = CapturedLaunches().merged(functions).text()
    assert text == CapturedLaunches().merged(reversed(functions)).text()
    assert parse_captured(text, "f").text() == text
    assert '"LIMIT": Infinity' in text
    assert parse_captured(text, "f").merged(functions).text() == text
    assert [each["source"] for each in json.loads(text)["functions"]] == ["a.py", "b.py"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "Invalid JSON"),
        ('{"format": 9, "functions": []}', "format: Input should be 1"),
        ('{"format": 1, "functions": [{}]}', "functions.0.source: Field required"),
        ("[]", "is no file of captured launches"),
        (
            json.dumps(
                {
                    "format": 1,
                    "functions": [
                        {
                            "source": "k.py",
                            "function": "k",
                            "launches": [launch(arguments={"x": "*complex64"})],
                        }
                    ],
                }
            ),
            "`x` is a `*complex64`",
        ),
    ],
)
def test_broken_files(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_captured(text, "captured/k.json")
    assert part in str(caught.value)
    assert "captured/k.json" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "module", "packaged"),
    [
        ("my_ops/loss.py", "my_ops.loss", "my_ops/loss.py"),
        ("src/my_ops/loss.py", "my_ops.loss", "my_ops/loss.py"),
        ("my_ops/__init__.py", "my_ops", "my_ops/__init__.py"),
        ("torch-ext/k/loss.py", "k.loss", "loss.py"),
        ("torch-ext/k/__init__.py", "k", "__init__.py"),
        ("kernels.py", "kernels", "kernels.py"),
    ],
)
def test_modules_of_sources(source: str, module: str, packaged: str) -> None:
    assert module_of(source) == module
    assert packaged_module(source, "torch-ext/k") == packaged


SOURCES = {
    "ops/k.py": "from .helpers import add\nfrom . import LIMIT\nimport ops.unused as u\n\n"
    'SIZE = 4\nOTHER = 5\n\n@jit(SIZE)\ndef k(x):\n    """About."""\n    return add(x) + LIMIT\n\n'
    "def wrapper():\n    return k(OTHER)\n",
    "ops/helpers.py": "def add(x):\n    return x + inner(x)\n\ndef inner(x):\n    return x\n",
    "ops/__init__.py": "LIMIT = 3\n",
    "ops/unused.py": "A = 1\n",
    "ops/alone.py": "B = 1\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("ops/k.py", "return add(x)", "return add(x + 1)", True),
        ("ops/k.py", "@jit(SIZE)", "@jit(SIZE, 2)", True),
        ("ops/k.py", "SIZE = 4", "SIZE = 8", True),
        ("ops/helpers.py", "return x\n", "return -x\n", True),
        ("ops/__init__.py", "LIMIT = 3", "LIMIT = 4", True),
        ("ops/k.py", "About.", "More about it.", False),
        ("ops/k.py", "SIZE = 4", "# a comment\n\nSIZE = 4", False),
        ("ops/k.py", "OTHER = 5", "OTHER = 6", False),
        ("ops/k.py", "return k(OTHER)", "return k(OTHER + 1)", False),
        ("ops/unused.py", "A = 1", "A = 2", False),
    ],
)
def test_a_digest_covers_what_a_kernel_uses(file: str, old: str, new: str, changes: bool) -> None:
    before = SourceDigests(SOURCES).of("ops/k.py", "k")
    assert old in SOURCES[file]
    changed = {**SOURCES, file: SOURCES[file].replace(old, new)}
    assert (SourceDigests(changed).of("ops/k.py", "k") != before) == changes


def test_functions_that_nothing_calls_import_nothing() -> None:
    texts = SourceDigests(
        {
            "ops/k.py": "import triton\nfrom .now import used\nused()\n\n"
            "def later():\n    from . import unused\n\n@decorated()\ndef k():\n    pass\n"
            "def decorated():\n    import ops.decorating\n",
            "ops/now.py": "def used():\n    import ops.deep\n\ndef other():\n    import ops.far\n",
            "ops/deep.py": "",
            "ops/far.py": "",
            "ops/unused.py": "",
            "ops/decorating.py": "",
            "ops/__init__.py": "",
            "ops/triton/__init__.py": "",
        }
    )
    files = ("ops/k.py", "ops/decorating.py", "ops/deep.py", "ops/now.py")
    assert texts.imported("ops/k.py") == files


def test_a_source_that_is_no_python() -> None:
    with pytest.raises(ConfigError) as caught:
        SourceDigests({"k.py": "def k(:\n"}).of("k.py", "k")
    assert "k.py:1: is no Python" in str(caught.value)


def test_a_digest_is_the_same_for_all_interpreters() -> None:
    text = (
        "@jit\ndef k(x, /, *y, n: int = 1):\n    return [f'{i!r:>3}' for i in x] or (lambda: n)()\n"
    )
    assert SourceDigests({"a.py": text}).of("a.py", "k") == "8808ee3d023a28ef"
