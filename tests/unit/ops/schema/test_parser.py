"""Torch's function schemas, read without Torch."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.ops.schema.model import Schema, SymbolicDefault
from kbuild.ops.schema.parser import SchemaError, parse_schema

WHOLE = (
    "rmsnorm(Tensor x, Tensor? bias, Tensor(a!) out, float eps=1e-6, int[2] pad=[0,0], *, "
    "bool causal=False, ScalarType? dtype=None) -> (Tensor, Tensor(a!))"
)


def test_canonical_text():
    assert str(parse_schema(WHOLE)) == (
        "rmsnorm(Tensor x, Tensor? bias, Tensor(a!) out, float eps=1e-06, int[2] pad=[0, 0], *, "
        "bool causal=False, ScalarType? dtype=None) -> (Tensor, Tensor(a!))"
    )
    assert str(parse_schema("f( )->( )")) == "f() -> ()"
    assert str(parse_schema("a::f.b(Tensor! x)->(Tensor y)")) == "a::f.b(Tensor! x) -> Tensor y"
    assert str(parse_schema("f(str s='a\\'\"')->()")) == 'f(str s="a\'\\"") -> ()'


@pytest.mark.parametrize(
    ("text", "words", "column"),
    [
        ("f(Tensor x)", "expected `->`, found the end", 12),
        ("f", "expected `(`, found the end", 2),
        ("", "expected the op's name, found the end", 1),
        ("f(double x) -> ()", "`double` is not a type of an op's argument", 3),
        ("f(Tensor x, Tensor x) -> ()", "two arguments are called `x`", 20),
        ("f(int a=1, int b) -> ()", "`b` has no default, and one before it has", 16),
        ("f(Tensor x y) -> ()", "expected `,` or `)`, found `y`", 12),
        ("f(Tensor x,) -> ()", "expected a type, found `)`", 12),
        ("f(Tensor) -> ()", "expected the argument's name, found `)`", 9),
        ("f(bool a=true) -> ()", "expected a value of type `bool`, found `true`", 10),
        ("f(int a=1.5) -> ()", "`1.5` is not an integer", 9),
        ("f(int a=9223372036854775808) -> ()", "does not fit into 64 bits", 9),
        ("f(int[2] a=[1]) -> ()", "`int[2]` has 2 values, not 1", 12),
        ("f(int[] a=1) -> ()", "expected a list, found `1`", 11),
        ("f(float x=inf) -> ()", "expected a value of type `float`, found `inf`", 11),
        ("f(str s='\\x41') -> ()", "an escape that schemas do not know", 9),
        ("f(Layout l=sparse) -> ()", "expected a value of type `Layout`, found `sparse`", 12),
        ("f(Tensor x=None) -> ()", "expected a value of type `Tensor`, found `None`", 12),
        ("f(Tensor(a x) -> ()", "expected `)`, found `x`", 12),
        ("f(Tensor x, ...) -> ()", "a fixed number of arguments", 13),
        ("f(*, *, int x) -> ()", "`*` is written twice", 6),
        ("f(Dict(str, int) x) -> ()", "`Dict` is not a type", 3),
        ("f(int[][] x) -> ()", "lists of lists", 3),
        ("f(Tensor x) -> Tensor; g", "expected the end, found `;`", 22),
        ("f(Tensor é) -> ()", "expected the argument's name, found `é`", 10),
    ],
)
def test_what_is_refused(text, words, column):
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert words in caught.value.message
    assert caught.value.column == column


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="fxTensor int?[]()*!,=->.|a'12 \"\\", max_size=40))
def test_any_text_is_read_or_refused_in_words(text):
    try:
        found = parse_schema(text)
    except SchemaError as error:
        found = error
    if isinstance(found, Schema):
        assert parse_schema(str(found)) == found
    else:
        assert found.message
        assert 1 <= found.column <= len(text) + 1


class TestAgainstTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")
        self.parse = self.torch._C.parse_schema

    def compare(self, text):
        ours, theirs = parse_schema(text), self.parse(text)
        overload = theirs.overload_name
        assert (ours.name, ours.overload) == (theirs.name, overload)
        assert len(ours.arguments) == len(theirs.arguments)
        for mine, their in zip(ours.arguments, theirs.arguments, strict=True):
            assert (mine.name, mine.keyword_only) == (their.name, their.kwarg_only)
            self.same_type(mine.type, their)
            assert (mine.default is not None) == their.has_default_value()
            if mine.default is not None:
                assert self.value(mine.default.value) == their.default_value
        for mine, their in zip(ours.returns, theirs.returns, strict=True):
            assert mine.name == their.name
            self.same_type(mine.type, their)
        again = self.parse(str(ours))
        # Torch keeps the 1 of `float? x=1` an integer.
        assert again == theirs or parse_schema(str(again)) == parse_schema(str(theirs))

    def same_type(self, mine, their):
        written = {"Scalar": "number", "SymInt": "int", "Stream": "Stream"}
        codes = dict.fromkeys(["ScalarType", "Layout", "MemoryFormat"], "int")
        text = {**written, **codes}.get(mine.name, mine.name)
        for suffix in mine.suffixes:
            text = f"Optional[{text}]" if suffix == "?" else f"List[{text}]"
        assert text == str(their.type)
        alias = their.alias_info
        if mine.alias is None or alias is None:
            assert mine.alias is alias
            return
        assert mine.alias.write == alias.is_write
        if mine.suffixes and "[]" in "".join(mine.suffixes).replace("2", ""):
            return  # Torch moves the sets to the elements
        assert set(mine.alias.before) == alias.before_set
        after = mine.alias.before if mine.alias.after is None else mine.alias.after
        assert set(after) == alias.after_set

    def value(self, value):
        """Torch keeps words as numbers."""
        if isinstance(value, tuple):
            return [self.value(item) for item in value]
        if isinstance(value, SymbolicDefault):
            return {"Mean": 1, "strided": 0, "contiguous_format": 0, "bfloat16": 15, "long": 4}[
                value.name
            ]
        return value

    @pytest.mark.full
    def test_torchs_own_schemas(self):
        """Every op of Torch whose types kbuild knows; the others are refused in words."""
        read = refused = 0
        for schema in self.torch._C._jit_get_all_schemas():
            text = str(schema)
            try:
                parse_schema(text)
            except SchemaError:
                refused += 1
                continue
            read += 1
            self.compare(text)
        assert read > 3000
        assert refused < read / 3


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("int a=" + "9" * 5000, "does not fit into 64 bits"),
        ("float a=1e999", "does not fit into 64 bits"),
        ("float a=" + "9" * 5000, "does not fit into 64 bits"),
        ("int[3000000000] a=1", "a list of `3000000000` values"),
        ("int[" + "9" * 5000 + "] a=1", "a list of `99999999999999999999` values"),
        ("int[2.5] a=1", "a list of `2.5` values"),
        ("int[0] a", "a list of `0` values"),
    ],
)
def test_numbers_without_end(argument: str, words: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(words)) as raised:
        parse_schema(f"f(Tensor x, {argument}) -> ()")
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("f(double x) -> ()", "write `float`"),
        ("f(Tensor x)", "`-> ()` for an op without results"),
        ("f(bool a=true) -> ()", "write `True` or `False`"),
        ("f(Tensor(a! x) -> ()", "an argument that is written to is `Tensor(a!) x`"),
    ],
)
def test_hints(text, hint):
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert hint in caught.value.hint
