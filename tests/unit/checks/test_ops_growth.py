"""The check `ops` takes as long as there is code, whatever its shape: calls are counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbuild.checks.ops import check_ops_source
from kbuild.sources import containers, resolution

FEW, MANY = 12, 48
HEAD = (
    "import torch\nfrom functools import partial\nfrom torch.library import custom_op\n"
    "from ._ops import add_op_namespace_prefix as p\n"
)
LINES = (
    "{a} = {a}.view({i}).contiguous()",
    "{a} = {b}.c({a}, {a})[{i}].d",
    "{a} = {a} + 'x'",
    "{a} = f'{{{a}}}_{i}'",
    "{a} += 'y'",
    "{a} = p({b})",
    "{a} = {a} if {b} else {b} or {a}",
    "{a}, {b} = {b}, {a}.c({b})",
    "{a} = [{b}.z for {b} in {a} if {b}({i})]",
    "{a} = [p(v) for v in {a}]",
    "{a} = {{k: v for k, v in {b}.items()}}",
    "{a} = {a} + [p('x{i}')]",
    "{a}.append({b})",
    "{a}['k{i}'] = p('x{i}')",
    "{a} = {b}['k{i}']",
    "{a} = dict({a})",
    "for {a} in {b}: {a} = {a}[0]",
    "for {a} in {b}.items({i}): {b} = {a}",
    "{a} = partial({b})",
    "l{i} = lambda {b}: l{j}({b})",
    "{a} = getattr({b}, 'name{i}')",
    "{a} = h{j}({a})",
    "def h{i}({a}): return h{j}({a}) or {b}",
    "def h{i}({a}): return {a}",
    "class A{i}: {a} = {b}",
    "custom_op({a}, mutates_args=())(len)",
    "custom_op({a}['k{i}'], mutates_args=())(len)",
    "for {b} in {a}: custom_op({b}, mutates_args=())(len)",
    "{a}('ns::op', mutates_args=())(len)",
)
WRAPPERS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "module": list,
    "function": lambda body: ["def f(a, b=custom_op):", *_indented(body)],
    "method": lambda body: ["class C:", "  def f(self, a, b='n'):", *_indented(body, 2)],
    "closure": lambda body: [
        *("def f(a):", " b = custom_op", " def g(a, c=a):", "  nonlocal b"),
        *_indented(body, 2),
    ],
    "loop": lambda body: ["a = b = custom_op", "for a in b:", *_indented(body)],
}


@pytest.fixture(autouse=True, scope="module")
def _low_limits() -> Iterator[None]:
    """What is not told apart any further is so from a few lines on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolution, "_MOST_MEANINGS", 6)
        patch.setattr(containers, "_MAX_TEXTS", 6)
        yield


def _indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [" " * depth + line for line in lines]


def source(templates: Sequence[tuple[str, str, str]], wrapper: str, count: int) -> str:
    body = [
        template.format(a=a, b=b, i=i, j=max(i - 1, 0))
        for i in range(count)
        for template, a, b in templates
    ]
    return HEAD + "\n".join([*WRAPPERS[wrapper](body), "a('x::y')", "custom_op(b)", ""])


def calls(root: Path, text: str) -> int:
    """Functions that the check calls for a package with such a file."""
    root.mkdir(exist_ok=True)
    (root / "__init__.py").write_text(text)
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        check_ops_source(root, "k")
    finally:
        sys.setprofile(before)
    return counted


line = st.tuples(st.sampled_from(LINES), st.sampled_from("abc"), st.sampled_from("abc"))
lines = st.lists(line, min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(lines, st.sampled_from(sorted(WRAPPERS)))
@example([("{a} = {a}.view({i}).contiguous()", "a", "b")], "function")
@example([("{a} = {a} + [p('x{i}')]", "a", "b"), (LINES[-2], "a", "b")], "module")
@example([("{a}['k{i}'] = p('x{i}')", "a", "b"), (LINES[-3], "a", "b")], "module")
@example([("{a} = [p(v) for v in {a}]", "a", "b"), (LINES[-4], "a", "b")], "module")
def test_four_times_the_code_takes_four_times_the_calls(
    tmp_path_factory: pytest.TempPathFactory,
    templates: list[tuple[str, str, str]],
    wrapper: str,
) -> None:
    root = tmp_path_factory.getbasetemp() / "growing"
    few, many = (calls(root, source(templates, wrapper, count)) for count in (FEW, MANY))
    assert many <= few * (MANY / FEW) * 1.5


@pytest.mark.parametrize(
    "module",
    [
        "from .m{before} import *\nfrom .m{other} import *\nx = x.y(x)\n",
        "from .m{before} import x as y\nx = y + 'a'\ncustom_op(x, mutates_args=())(len)\n",
        "from . import m{before}\nfrom .m{other} import x\ndef g(): return m{before}.g()\nx(g())\n",
    ],
)
def test_modules_that_take_names_from_each_other(tmp_path: Path, module: str) -> None:
    def package(count: int) -> int:
        root = tmp_path / str(count)
        root.mkdir()
        for i in range(count):
            text = HEAD + module.format(before=max(i - 1, 0), other=i * 5 // 7)
            (root / f"m{i}.py").write_text(text + f"z{i} = x(custom_op)\n")
        return calls(root, "from .m0 import *\n")

    assert package(MANY) <= package(FEW) * (MANY / FEW) * 1.5
