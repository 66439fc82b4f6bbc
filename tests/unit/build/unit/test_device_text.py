"""What is left out of a preprocessed text, and which architectures may share a verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.build.unit.device_text import DeviceText, declarations


class Texts:
    """Headers on disk, and the text that a preprocessor would make of them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, toolkit: str, left_out: str = "int rest();", main: str = "") -> DeviceText:
        files = {
            "toolkit/cuda_runtime.h": toolkit,
            "torch-a/ATen/core/Tensor.h": "struct Tensor;",
            "torch-a/ATen/ops/zeros.h": "Tensor zeros();",
            "torch-a/torch/device.h": "__attribute__((device)) int device();",
            "torch-a/torch/rest.h": left_out,
            "torch-a/torch/python_stub.h": "struct _object;",
            "std/vector": "struct vector;",
            "x.cu": f"int own; {main}",
        }
        includes = {"x.cu": "torch/all.h", "torch-a/ATen/core/Tensor.h": "c10/python_stub.h"}
        lines = []
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#include <{includes[name]}>\n" if name in includes else "")
            flags = "" if name.endswith(".cu") else " 1 3 4"
            lines.append(f'# 1 "{path}"{flags}\n{text}\n')
        folders = [[str(self.root / name).encode()] for name in ("torch-a", "toolkit")]
        return DeviceText("".join(lines).encode(), *folders)


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    return Texts(tmp_path)


def test_what_is_left_out(texts: Texts) -> None:
    text = texts.text("int runtime();")
    assert text.left_out.decode().split("\n") == [
        "Tensor zeros();",
        "int rest();",
        "struct vector;",
        "",
    ]
    for kept in (
        b"int runtime();",
        b"struct Tensor;",
        b"device()",
        b"struct _object;",
        b"int own;",
    ):
        assert kept in text.lean


def test_a_line_that_only_looks_like_a_line_marker_is_text(texts: Texts) -> None:
    main = 'const char *s = R"(\n# 12 words\n# x "y"\n# 1 )";\nint more;'
    assert main.encode() in texts.text("", main=main).lean


def test_operators_that_the_author_names_are_kept(texts: Texts) -> None:
    assert b"Tensor zeros();" in texts.text("", main="auto f() { return at::zeros(); }").lean


@pytest.mark.parametrize(
    ("main", "is_kept"),
    [
        ("auto f() { return at::rest(); }", True),
        ("auto f() { return torch::detail::rest(); }", True),
        ("auto f() { return c10 :: rest(); }", True),
        ("auto f() { return rest(); }", False),
        ("auto f() { return mine::rest(); }", False),
        ("auto f() { return device_of(1); }", False),
    ],
)
def test_names_of_torch_that_no_kept_header_has(texts: Texts, main: str, is_kept: bool) -> None:
    assert (b"int rest();" in texts.text("", main=main).lean) is is_kept


def test_a_function_that_is_found_by_its_argument_is_kept(texts: Texts) -> None:
    text = texts.text("", "int device_of(int);", "auto f() { return device_of(1); }")
    assert b"int device_of(int);" in text.lean


def test_whose_text_differs_is_no_group(texts: Texts) -> None:
    one = texts.text("int runtime();")
    assert texts.text("long runtime();").key == one.key
    assert texts.text("", left_out="int other();").key != one.key
    assert texts.text("", main="int more;").key != one.key


BODY = "int f(int x) {{ if (x) {{ return {}; }} return 0; }}"


@pytest.mark.parametrize(
    ("here", "there", "left_out", "expected"),
    [
        (BODY.format(1), BODY.format(2), "int f(long);", True),
        ("int f(int);", "", "int f(long);", False),
        ("int f(int);", "", "int g(long);", True),
        ("int f(int);", "int f(int); int f(float);", "int f(long);", False),
        ("struct S { int a; };", "struct S { int b; };", "int b;", True),
        ("struct S { int a; };", "struct S { int b; };", "template <> struct X<S>;", False),
        ("constexpr int N = 1;", "constexpr int N = 2;", "int x[N];", False),
        ("namespace n { int f(int); }", "namespace n { }", "int f(long);", True),
        ("namespace n { int f(int); }", "", "namespace n { int f(long); }", False),
        ("namespace a { namespace n { int f(int); } }", "", "namespace n { int f(long); }", True),
        ("namespace a { namespace n { int f(int); } }", "", "a::n::x f(long);", False),
        ("S::S(int v) : x(v) {}", "S::S(int v) : x(1) {}", "struct S;", True),
        ('extern "C" { int f(int); }', "", "int f(long);", False),
        ("#pragma x\nauto l = [](int a) { return 1; };", "", "int l;", False),
    ],
)
def test_declarations_that_vary(
    texts: Texts, here: str, there: str, left_out: str, expected: bool
) -> None:
    one, other = texts.text(here, left_out), texts.text(there, left_out)
    assert one.key == other.key
    assert one.is_like(other.varying, one.left_out_words()) is expected
    assert other.is_like(one.varying, one.left_out_words()) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int x;",
        "int x;\n",
        '# 1 "a"\n',
        '# 1 "a"\n# 2 "b" 1\n# 3 "c"\nint x;\n\n# x\n# 4 "a" 2\n',
        '\n\n# 1 "a"\n# y\nint x;',
    ],
)
def test_a_text_of_the_author_alone_is_kept_as_it_is(text: str) -> None:
    assert DeviceText(text.encode(), [b"/torch"], [b"/toolkit"]).lean.decode() == text


def test_declarations() -> None:
    text = b"""namespace a { inline namespace b { int x = 1; } }
    template <typename T> struct C : D { int f() { return 1; } };
    int g(int y = 2) { if (y) { return 1; } return 0; }
    enum E { ONE = 1 };"""
    assert list(declarations(text)) == [
        ((b"a", b"b"), b"int x = 1", b""),
        ((), b"template <typename T> struct C : D", b"{ int f() { return 1; } }"),
        ((), b"int g(int y = 2)", b""),
        ((), b"enum E", b"{ ONE = 1 }"),
    ]
