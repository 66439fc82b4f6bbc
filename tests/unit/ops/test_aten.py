"""ATen calls and views of a section: what is read, and every error with its line and hint."""

from __future__ import annotations

import pytest

from kbuild.ops.aten_calls import operators
from kbuild.ops.model import OpSpec
from kbuild.ops.schema.parser import parse_schema
from kbuild.ops.steps import AtenCall
from tests.support.sections import HEAD, op_of, said

KEYS = """\
schema = "k(Tensor x, Tensor? b, Tensor(a!) w, float eps=1.0, str s='a') -> (Tensor out, Tensor? z)"
shapes = { x = ["M", "N"], b = ["N"], w = ["N"], out = "x", z = "x", t = ["N"], u = ["N"] }
dtypes = ["float16"]
temporaries = ["t", "u"]
returned = { z = "N == 1" }
"""
LAUNCH = """
[[kernel.k.op.launch]]
function = "f"
grid = [1]
"""
STEP = "\n[[kernel.k.op.launch]]\n"


def text_of(*steps: str, more: str = "") -> str:
    return HEAD + KEYS + more + LAUNCH + "".join(STEP + step for step in steps)


def step(operator: str, arguments: str, results: str = "[]", more: str = "") -> str:
    return f'aten = "{operator}"\narguments = {arguments}\nresults = {results}\n{more}'


def calls(*steps: str) -> tuple[AtenCall, ...]:
    return op_of(text_of(*steps)).aten


def test_every_schema_of_the_table_can_be_read():
    assert len(operators()) > 1000
    for name, text in operators().items():
        schema = parse_schema(text)
        assert name == schema.name + (f".{schema.overload}" if schema.overload else "")


def test_steps_are_in_order():
    op: OpSpec = op_of(
        text_of(
            step("zero_", '["w"]'), LAUNCH.partition("]]")[2], step("clone", '["x"]', '["out"]')
        )
    )
    assert op.steps == (("launch", 0), ("aten", 0), ("launch", 1), ("aten", 1))
    assert op.produced == {"out"}


@pytest.mark.parametrize(
    ("operator", "arguments", "runs"),
    [
        ("mul.Scalar", '["x", 2]', ["mul.Tensor"]),
        ("pow.Tensor_Scalar", '["x", 2]', ["pow.Tensor_Tensor"]),
        ("pow.Scalar", '[2, "x"]', ["pow.Tensor_Tensor"]),
        ("where.ScalarOther", '["x", "x", 2.0]', ["where.self"]),
        ("clamp", '["x", 0, 1]', ["maximum", "minimum"]),
        ("clamp", '["x", "None", 1]', ["minimum"]),
        ("clamp_min", '["x", 0.5]', ["maximum"]),
        ("add.Tensor", '["x", "x"]', ["add"]),
        ("rsub.Tensor", '["x", "x", 2]', ["sub"]),
        ("full_like", '["x", 1.0]', ["empty_like", "fill_.Tensor"]),
        ("addmm", '["x", "x", "x"]', ["t", "linear"]),
        ("arange", '["N"]', ["tril_indices", "select.int"]),
        ("arange.start_step", '[0, "N", 1]', ["tril_indices", "select.int"]),
        ("aten::neg", '["x"]', ["neg"]),
    ],
)
def test_what_runs_for_an_operator(operator, arguments, runs):
    (call,) = calls(step(operator, arguments, '["out"]'))
    assert [each.operator for each in call.calls] == runs
    assert call.operator == operator.removeprefix("aten::")


@pytest.mark.parametrize(
    ("operator", "arguments", "results", "words"),
    [
        ("summ", '["x"]', '["t"]', "17: kernel.k.op[0].launch[1].aten: `summ` is not an operator"),
        ("summ", '["x"]', '["t"]', "hint: did you mean `sum`?"),
        ("sum.dim", '["x"]', '["t"]', "hint: overloads: `sum`, `sum.dim_IntList`"),
        ("arange", '["eps"]', '["t"]', "takes a `Scalar`, which Torch's stable ABI cannot pass"),
        ("addmm", '["x", "x", "x", 2]', '["out"]', "hint: call another operator, or launch a"),
        ("sum.dim_IntList", '["x"]', '["t"]', "lacks `int[1]? dim`\n  hint: the schema is"),
        ("neg", '["x", 1]', '["t"]', "has 2 values; the schema is `neg(Tensor self) -> Tensor`"),
        ("neg", '["b"]', '["t"]', '`b` may be None\n  hint: call with `when = "has(b)"`'),
        ("neg", '["z"]', '["t"]', "`z` may be None"),
        ("neg", '["None"]', '["t"]', "cannot be None\n  hint: `Tensor self` of `neg("),
        ("neg", '["y"]', '["t"]', "`y` is unknown"),
        ("neg", "[[1]]", '["t"]', "must be a tensor or a number\n  hint: `Tensor self` of `neg("),
        ("neg", "[2]", '["t"]', "is a number, and no other argument is a tensor"),
        ("mul.Tensor", '["x", { dtype = "x" }]', '["out"]', "is no `Tensor`, as the schema says"),
        ("_to_copy", '["x", "float32"]', '["out"]',
         "must be `{ dtype = ... }`, as the schema says"),
        ("_to_copy", '["x", { dtype = "float" }]', '["out"]', "is neither a tensor nor a dtype"),
        ("_to_copy", '["x", "None", { string = "sparse" }]', '["out"]', "`sparse` is no layout"),
        ("clone", '["x", { string = "nhwc" }]', '["out"]', "`nhwc` is no memory format"),
        ("permute", '["x", 1]', '["t"]', "must be a list, as the schema says `int[]`"),
        ("permute", '["x", ["eps", 0]]', '["t"]', "`eps` is a float, and the schema says `int`"),
        ("cat", '[["x", 1]]', '["t"]', "lists tensors, not numbers"),
        ("masked_fill.Scalar", '["x", "x", { float = "big" }]', '["t"]', "`big` is not a float"),
        ("zero_", '["x"]', "[]", "`zero_` writes to `x`, which the op only reads\n  hint: write"),
        ("zero_", '["t"]', '["u"]', "`zero_` works in place\n  hint: leave `results` out"),
        ("neg", '["x"]', "[]", "is missing\n  hint: name what it produces: `results = "),
        ("neg", '["x"]', '["v"]', "`v` is neither a result nor a temporary"),
        ("neg", '["x"]', '["w"]', "`w` is neither a result nor a temporary"),
        ("sort", '["x"]', '["t"]', "names 1 of 2 results of `sort(Tensor self"),
        ("sort", '["x"]', '["t", "t"]', "`t` is listed twice"),
        ("view", '["x", ["N", "M"]]', '["out"]', "the result `out` may share the memory of `x`"),
        ("neg", '["t"]', '["t"]', "`t` is used before `neg` produces it"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_call(operator, arguments, results, words):
    assert words in said(text_of(step(operator, arguments, results)))


def test_results_that_share_memory_are_refused():
    views = [step("view", '["t", ["N", 1]]', f'["{name}"]') for name in ("out", "u")]
    assert said(text_of(*views)) == ""
    alias = step("t", '["out"]', '["z"]')
    assert "the result `z` may share the memory of `out`" in said(text_of(views[0], alias))


def test_an_optional_tensor_is_guarded_by_the_condition_of_the_call():
    (call,) = calls(step("neg", '["b"]', '["t"]', 'when = "has(b)"\n'))
    assert call.tensors() == {"b"}


def test_what_belongs_to_a_launch_or_to_a_call():
    wrong = said(text_of(step("neg", '["x"]', '["t"]', "grid = [1]\n")))
    assert "launch[1].grid: belongs to a launch\n  hint: an ATen call has `arguments`" in wrong
    wrong = said(HEAD + KEYS + LAUNCH + 'results = ["t"]\n')
    assert "launch[0].results: belongs to a call of ATen" in wrong
    wrong = said(HEAD + KEYS + STEP + step("neg", '["x"]', '["t"]'))
    assert "launch: launches no kernel\n  hint: write a function in Python instead" in wrong


def test_a_fallback_runs_no_steps():
    wrong = said(text_of(step("zero_", '["w"]'), more='fallback = "jit"\n'))
    assert "fallback: runs neither ATen calls nor views" in wrong


@pytest.mark.parametrize(
    ("views", "words"),
    [
        ('{ v = { of = "y", shape = [1] } }', "views.v.of: `y` is not a tensor"),
        (
            '{ v = { of = "w2", shape = [1] }, w2 = { of = "x", shape = [1] } }',
            "describe it before",
        ),
        ('{ v = { of = "v", shape = [1] } }', "`v` is not a tensor\n  hint: describe it before"),
        ('{ x = { of = "w", shape = [1] } }', "`x` is a tensor already"),
        ('{ t = { of = "w", shape = [1] } }', "`t` is a temporary tensor already"),
        ('{ z = { of = "t", shape = [1] } }', "`z` may be None\n  hint: return a tensor"),
        ('{ v = { of = "x", shape = ["N"], strides = [1, 2] } }', "has 2 strides for 1 dimensions"),
        ('{ v = { of = "x", shape = [-1] } }', "`-1` is negative"),
        ('{ v = { of = "x", shape = ["size(t, 0)"] } }', "`t` is not allocated yet"),
        ('{ v = { of = "x" } }', "views.v.shape: is missing"),
        ('{ v = { of = "x", shape = ["numel(b)"] } }', "`b` may be None"),
    ],
)
def test_what_is_wrong_with_a_view(views, words):
    assert words in said(text_of(more=f"views = {views}\n"))


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("x", "the result `out` would share the memory of `x`, which the caller has"),
        ("v", "the result `out` would share the memory of `x`, which the caller has"),
        ("t", ""),
    ],
)
def test_a_result_is_a_view_of_a_temporary(of, words):
    views = (
        f'{{ v = {{ of = "x", shape = ["M * N"] }}, out = {{ of = "{of}", shape = ["N", 1] }} }}'
    )
    text = text_of(more=f"views = {views}\n").replace(' out = "x",', "")
    assert (words in said(text)) if words else said(text) == ""


def test_views_may_be_used_where_their_tensor_is_given():
    views = 'views = { v = { of = "b", shape = ["N"] } }\n'
    guarded = step("neg", '["v"]', '["t"]', 'when = "has(b)"\n')
    assert said(text_of(guarded, more=views)) == ""
    assert "`v` may be None" in said(text_of(guarded.partition("when")[0], more=views))
    grid = text_of(more=views).replace("grid = [1]", 'grid = ["size(v, 0)"]')
    assert "`v` may be None" in said(grid)
    assert said(grid.replace("grid", 'when = "has(b)"\ngrid')) == ""
