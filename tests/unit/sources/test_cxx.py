"""What the preprocessor leaves of a C++ source."""

from __future__ import annotations

import time

import pytest

from kbuild.sources.cxx import cxx_tokens, read_cxx


def texts(source: str) -> list[str]:
    return [token.text for token in read_cxx(source, "YES", undefined=("NO",))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#ifdef NO\na\n#else\nb\n#endif c", ["b"]),
        ("#if defined(YES) && /* why */ !defined NO // really\na\n#endif", ["a"]),
        ("#if 0\n'\n#elif YES\na\n#endif", ["a"]),
        ("/* at the\nstart */ # /* and here */ ifdef NO\na\n#endif\nb", ["b"]),
        ("x /* in the\nmiddle */ #ifdef NO", ["x", "#", "ifdef", "NO"]),
        ("#define A /* over\nlines */ b\nc", ["c"]),
        ('#define A "/*" // \\\n b\nc', ["c"]),
        ('#define A R"x(\n)")x" b\nc', ["c"]),
        ("#define A '\"'\nb", ["b"]),
        ("1e-5 0x1.0p-3 1'000u '0' u8\"s\"", ["1e-5", "0x1.0p-3", "1'000u", "'0'", 'u8"s"']),
        ("a && b || c != d", ["a", "&&", "b", "||", "c", "!=", "d"]),
        ("a \\\n#ifdef NO", ["a", "#", "ifdef", "NO"]),
    ],
)
def test_tokens_of_compiled_branches(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    ("start", "is_guard"),
    [
        ("#ifndef A_H\n#define A_H\n", True),
        ("// text\n#pragma once\n#ifndef A_H\n#define A_H\n", True),
        ("#ifndef A_H\n#define B_H\n", False),
        ("int x;\n#ifndef A_H\n#define A_H\n", False),
        ('#include "b.h"\n#ifndef A_H\n#define A_H\n', False),
        ("#ifndef A_H\n", False),
    ],
)
def test_an_include_guard_is_no_condition(start: str, is_guard: bool) -> None:
    tokens = read_cxx(f'{start}#include "a.h"\ny\n#endif\n')
    assert [token.maybe for token in tokens if token.text == "y"] == [not is_guard]


def test_an_include_is_one_token() -> None:
    source = '#ifdef NO\n#include "a.h"\n#endif\n// #include "b.h"\n#include_next <c.h>\n'
    assert [token.text for token in cxx_tokens(source) if token.kind == "include"] == [
        '"a.h"',
        "<c.h>",
    ]


@pytest.mark.parametrize(
    "part", ["/*", "/**", "/**/", "#", "'", 'R"', 'R"x(', "\\\n", "\\\r\n/**/", "/*\n", '"\\', "(#"]
)
def test_time_grows_with_the_text(part: str) -> None:
    for source in (part * 20_000, f"#{part * 20_000}"):
        started = time.process_time()
        cxx_tokens(source)
        read_cxx(source)
        assert time.process_time() - started < 3, source[:10]
