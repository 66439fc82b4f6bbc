"""What `plan` and `list-variants` print, and what they say of a selection that is empty."""

from __future__ import annotations

import pytest

from tests.support.projects import BINDING, kernel, write_project

NAME = "torch213-cxx11-cu130-x86_64-linux"


@pytest.fixture
def project(here):
    return write_project(here / "demo", BINDING, kernel("cuda"), backends=("cuda",))


@pytest.mark.usefixtures("project")
def test_a_row_for_each_variant(kbuild):
    answer = kbuild("plan", "demo", "--no-toolchain")
    assert answer.code == 0, answer.err
    head, *rows = answer.out.splitlines()
    assert head.split() == ["variant", "sources", "toolchain", "archs"]
    assert len(rows) == len(kbuild("list-variants", "demo").out.split())
    assert max(map(len, rows)) <= 80
    (row,) = [row.split() for row in rows if row.startswith(NAME)]
    assert row[3:] == ["7.5", "...", "12.1+PTX", "(10)"]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("more", [("--variant", NAME), ("-v",)])
def test_one_variant_is_shown_in_full(kbuild, more):
    answer = kbuild("plan", "demo", "--no-toolchain", *more)
    assert "  archs      7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX" in answer.out.splitlines()


@pytest.mark.usefixtures("project")
def test_what_cannot_be_built_is_grouped_by_reason(kbuild):
    foreign = [name for name in kbuild("list-variants", "demo").out.split() if "aarch64" in name]
    lines = kbuild("plan", "demo").out.splitlines()
    after = lines[lines.index("not on this machine:") + 1 :]
    about = [line for line in after if "needs aarch64-linux" in line]
    assert len(about) == 1
    assert about[0].startswith(f"  {len(foreign)} variants: needs aarch64-linux")
    assert max(map(len, lines)) <= 80


MANY = """
[general]
name = "many"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.many]
backend = ["cuda"]
language = "triton"
toolchain = "triton==3.9.0"
src = ["many.py"]
cuda-capabilities = ["8.0", "9.0"]

[[kernel.many.op]]
schema = "many(Tensor(a!) x) -> ()"
shapes = { x = ["M", "N"] }
dtypes = ["float16", "bfloat16", "float32"]
grid = ["M"]
constants = { N = { value = "N", choices = [CHOICES] } }
"""


@pytest.mark.parametrize(("choices", "is_many"), [(50, True), (40, False)])
def test_very_many_images_are_announced(here, kbuild, choices, is_many):
    (here / "many.py").write_text(
        "import triton\n\n\n@triton.jit\ndef many(x, N: triton.language.constexpr):\n    pass\n"
    )
    (here / "torch-ext" / "many").mkdir(parents=True)
    (here / "torch-ext" / "many" / "__init__.py").touch()
    text = MANY.replace("CHOICES", ", ".join(map(str, range(1, choices + 1))))
    (here / "build.toml").write_text(text)
    answer = kbuild("plan", "--no-toolchain")
    assert answer.code == 0, answer.err
    words = (
        "warning: 600 images have to be compiled, all of them for `many` of kernel.many, which has "
        "50 values of the constant `N` (12 images each), 3 combinations of `dtypes` (200 images "
        "each), 2 assumptions about alignment (300 images each), 2 archs (300 images each); "
        "shorten these lists to compile fewer"
    )
    assert " ".join(answer.err.split()).count(words) == int(is_many)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("command", ["plan", "build", "list-variants"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--torch", "2.3"), "`2.3` is not a Torch release"),
        (("--torch", "2.13", "--variant", "*-cu126-aarch64*", "--system", "x86_64-linux"),
         "no variant of my-kernel fits all of the selection"),
        (("--backend", "hip"), "does not list the backend `hip`\n  hint: general.backends"),
    ],
)  # fmt: skip
def test_an_empty_selection(kbuild, command, options, words):
    answer = kbuild(command, "demo", *options)
    assert answer.code == 2
    assert words in answer.err
