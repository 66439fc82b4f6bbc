"""The C++ tokenizer of the advice."""

from __future__ import annotations

import pytest

from kbuild.plugins.advice.uses import join_qualified_names
from kbuild.sources.cxx import cxx_tokens


def texts(source: str) -> list[str]:
    return [token.text for token in cxx_tokens(source) if token.kind not in ("string", "number")]


@pytest.mark.parametrize(
    "source",
    [
        "// at::Tensor\n",
        "// at::Tensor \\\n at::Tensor\n",
        "// at::Tensor \\\r\n at::Tensor\r\n",
        "/* at::Tensor\n at::Tensor */",
        "/* never closed at::Tensor",
        '"at::Tensor"',
        '"\\"at::Tensor"',
        '"at:: \\\n Tensor"',
        'u8"at::Tensor"',
        'R"(at::Tensor " at::Tensor)"',
        'LR"x(at::Tensor )" at::Tensor)x"',
        'R"(// at::Tensor\n)"',
        'R"(never closed at::Tensor',
        "'\\''",
        "#error don't use at::Tensor\n",
        '  #  warning "x" at::Tensor \\\n at::Tensor\n',
        "1'000'000",
        "0x1p-3",
    ],
)
def test_says_nothing(source):
    assert texts(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"a" x "b"', ["x"]),
        ("'\"' x '\"'", ["x"]),
        ('"\\\\" x', ["x"]),
        ('"http://x" y', ["y"]),
        ("a // b\nc", ["a", "c"]),
        ("a /* b */ c", ["a", "c"]),
        ("1'000 x 'y' z", ["x", "z"]),
        ('R"(a)" x R"(b)"', ["x"]),
        ("xR (a)", ["xR", "(", "a", ")"]),
        ("p->q.r", ["p", "->", "q", ".", "r"]),
        ("#define M(x) \\\n  f(x)\n", ["#", "define", "M", "(", "x", ")", "f", "(", "x", ")"]),
        ("#if 0\ndon't\nx\n#endif", ["#", "if", "don", "x", "#", "endif"]),
    ],
)
def test_tokens(source, expected):
    assert texts(source) == expected


@pytest.mark.parametrize(
    "line",
    [
        "#include <a/b.h>",
        '#include "a/b.h" // why',
        "  #  include <a/b.h>",
        "#import <a/b.h>",
        "# \\\n include <a/b.h>",
        "x;\n#include <a/b.h>",
    ],
)
def test_includes(line):
    (found,) = (token for token in cxx_tokens(line) if token.kind == "include")
    assert found.text[1:-1] == "a/b.h"


def test_no_include_in_the_middle_or_by_macro():
    assert not [t for t in cxx_tokens("x #include <a.h>\n#include A_H\n") if t.kind == "include"]


def test_places():
    found = {
        token.text: (token.line, token.column) for token in cxx_tokens('/*\n*/ a\n  "s" b\n\tc')
    }
    assert (found["a"], found["b"], found["c"]) == ((2, 4), (3, 7), (4, 2))
    (include,) = cxx_tokens("\n#include <a.h>\n")
    assert (include.line, include.column) == (2, 10)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("at::Tensor x", ["at::Tensor", "x"]),
        ("::at::Tensor", ["at::Tensor"]),
        ("at:: /* here */ Tensor", ["at::Tensor"]),
        ("at::\\\n  Tensor", ["at::Tensor"]),
        ("a::b::c d::e", ["a::b::c", "d::e"]),
        ("return ::at::x;", ["return", "at::x", ";"]),
        ("f(::at::x)", ["f", "(", "at::x", ")"]),
    ],
)
def test_qualified_names(source, expected):
    assert [word.text for word in join_qualified_names(cxx_tokens(source))] == expected
