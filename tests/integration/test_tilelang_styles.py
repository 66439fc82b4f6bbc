"""Every way to write a kernel in TileLang: compiled for the CPU and run, or refused in words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kbuild.system.errors import BuildError
from tests.support.dsl.tilelang_kernels import TileLangProject, shop
from tests.support.dsl.tilelang_styles import SOURCE, called

pytestmark = pytest.mark.network
FLAT = """
schema = "f(Tensor x) -> Tensor out"
function = "{name}"
shapes = {{ x = ["n"], out = "x" }}
dtypes = ["float32"]
contiguous = true
"""
WIDE = """
schema = "f(Tensor x) -> Tensor out"
function = "{name}"
shapes = {{ x = ["rows", "columns"], out = ["rows", "columns"] }}
dtypes = ["float32"]
"""
TWICE = {
    "eager": "",
    "annotated": "",
    "lazy": "",
    "factory": "",
    "alone": "",
    "matched": "",
    "pointers": 'args = { count = "n" }\n',
    "only_names": "configs = [{ block = 32 }]\n",
    "closed": "",
    "sized_by_numbers": "constants = { factor = 2 }\n",
    "applied": 'constants = { function = { string = "doubled" } }\n',
    "tuned": 'configs = "autotune"\n',
}
"""Functions that double a tensor -> what their ops have to say."""


@pytest.fixture(scope="module")
def tilelang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TileLangProject]:
    with shop(tmp_path_factory.mktemp("tilelang"), SOURCE) as found:
        yield found


@pytest.mark.parametrize("name", TWICE)
def test_tensors_of_any_size(tilelang, tmp_path, name):
    for one in tilelang.compiled(FLAT.format(name=name) + TWICE[name], "cpu"):
        for size in (1, 64, 1000):
            x, out = torch.randn(size), torch.zeros(size)
            assert called(one, tmp_path, {"x": x, "out": out}, count=size) == ""
            assert torch.equal(out, x * 2)


def test_a_count_that_tensors_do_not_have(tilelang, tmp_path):
    (one,) = tilelang.compiled(FLAT.format(name="pointers") + TWICE["pointers"], "cpu")
    tensors = {"x": torch.randn(8), "out": torch.zeros(8)}
    assert called(one, tmp_path, tensors, count=9) == (
        "x.shape[0] is 8, and the kernel is compiled for 9"
    )
    assert not tensors["out"].any()


def test_any_strides(tilelang, tmp_path):
    text = WIDE.format(name="strided")
    (one,) = tilelang.compiled(text, "cpu")
    whole = torch.randn(20, 40)
    for x in (whole, whole.T, whole[::3, 1::2]):
        out = torch.zeros(x.shape)
        assert called(one, tmp_path, {"x": x, "out": out}) == ""
        assert torch.equal(out, x * 2)


def test_strides_that_are_constants(tilelang, tmp_path):
    constants = "constants = { m = 64, across = 100 }\n"
    (one,) = tilelang.compiled(WIDE.format(name="strided_rows") + constants, "cpu")
    x, out = torch.randn(7, 100)[:, :64], torch.zeros(7, 64)
    assert called(one, tmp_path, {"x": x, "out": out}) == ""
    assert torch.equal(out, x * 2)
    words = called(one, tmp_path, {"x": x.contiguous(), "out": out})
    assert words == "x.stride(0) is 64, and the kernel is compiled for 100"


@pytest.mark.parametrize("turned", [False, True])
def test_dimensions_by_way_of_lists(tilelang, tmp_path, turned):
    text = WIDE.format(name="listed").replace("-> Tensor out", "-> Tensor out")
    if turned:
        text = text.replace('x = ["rows", "columns"]', 'x = ["columns", "rows"]')
    constants = f"contiguous = true\nconstants = {{ turned = {str(turned).lower()} }}\n"
    (one,) = tilelang.compiled(text + constants, "cpu")
    for rows, columns in ((3, 5), (64, 7)):
        x, out = torch.randn(*((columns, rows) if turned else (rows, columns))), None
        out = torch.zeros(rows, columns)
        assert called(one, tmp_path, {"x": x, "out": out}) == ""
        assert torch.equal(out, (x.T if turned else x) * 2)


def test_a_dimension_that_has_to_be_a_number(tilelang, tmp_path):
    text = WIDE.format(name="power") + "contiguous = true\n"
    with pytest.raises(BuildError, match=r"k\.py:\d+: TypeError: unsupported operand") as caught:
        tilelang.compiled(text, "cpu")
    assert "`columns`, `rows`: not among the constants in build.toml" in caught.value.hint
    fixed = 'constants = { columns = { value = "columns", choices = [4] } }\n'
    (one,) = tilelang.compiled(text + fixed, "cpu")
    x, out = torch.randn(7, 4), torch.zeros(7, 4)
    assert called(one, tmp_path, {"x": x, "out": out}) == ""
    assert torch.equal(out, x / 2)


def test_constants_that_calls_decide(tilelang, tmp_path):
    """Values for `T.const` that the section does not speak of are those that it is tuned for."""
    cases = "[kernel.k.op.tune]\ncases = [\n"
    cases += "".join(f"    {{ rows = 3, columns = {m} }},\n" for m in (64, 48, 64)) + "]\n"
    text = WIDE.format(name="wide") + "contiguous = true\n" + cases
    made = tilelang.compiled(text, "cpu")
    assert [one.image.constants["m"] for one in made] == [64, 48]
    for one in made:
        x = torch.randn(3, int(one.image.constants["m"]))
        out = torch.zeros(x.shape)
        assert called(one, tmp_path, {"x": x, "out": out}) == ""
        assert torch.equal(out, x * 2)
    with pytest.raises(AssertionError, match="constants without a value: `m`"):
        tilelang.compiled(WIDE.format(name="wide"), "cpu")


def test_a_dimension_that_is_computed_from_a_constant(tilelang, tmp_path):
    text = WIDE.format(name="halves").replace('out = ["rows", "columns"]', 'out = ["rows", "m"]')
    text = text.replace('x = ["rows", "columns"]', 'x = ["rows", "2 * m"]')
    rest = "contiguous = true\nconstants = { m = { value = 'm', choices = [32, 48] } }\n"
    text = text.replace("f(Tensor x) -> Tensor out", "f(Tensor x, Tensor(a!) out) -> ()")
    for one in tilelang.compiled(text + rest, "cpu"):
        m = int(one.image.constants["m"])
        x, out = torch.randn(5, 2 * m), torch.zeros(5, m)
        assert called(one, tmp_path, {"x": x, "out": out}) == ""
        assert torch.equal(out, x[:, :m] + x[:, m:])


def test_numbers_and_their_defaults(tilelang, tmp_path):
    text = FLAT.format(name="numbers").replace("Tensor x)", "Tensor x, float a, int k)")
    (one,) = tilelang.compiled(text, "cpu")
    x, out = torch.randn(100), torch.zeros(100)
    assert called(one, tmp_path, {"x": x, "out": out}, a=3.0, k=-2) == ""
    torch.testing.assert_close(out, x * 1.5 - 2 + 3 + 1)


def test_several_results(tilelang, tmp_path):
    text = FLAT.format(name="both").replace("-> Tensor out", "-> (Tensor more, Tensor less)")
    text = text.replace('out = "x"', 'more = "x", less = "x"')
    (one,) = tilelang.compiled(text, "cpu")
    x, more, less = torch.randn(100), torch.zeros(100), torch.zeros(100)
    assert called(one, tmp_path, {"x": x, "more": more, "less": less}) == ""
    assert torch.equal(more, x + 1)
    assert torch.equal(less, x - 1)


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("scratch", "`T.empty` are returned, only got", "return each of them"),
        ("unnamed", "has 2 parameters when it is compiled", "under the name it was assigned to"),
        ("product_of_sizes", r"`x.shape\[0\]` .* is count \* 2", "name the dimension with another"),
        ("any_options", r"takes `\*\*options`", "name each parameter"),
        (
            "workspace",
            r"k\.py:\d+: `T.alloc_global` is memory that",
            "one of the op's `temporaries`",
        ),
        (
            "unbound",
            "has neither tensor parameters nor a `T.prim_func`",
            "define the `T.prim_func`",
        ),
    ],
)
def test_what_is_refused(tilelang, name, words, hint):
    text = FLAT.format(name=name) + ("constants = { count = 64 }\n" if name == "unbound" else "")
    with pytest.raises(BuildError, match=words) as caught:
        tilelang.compiled(text, "cpu")
    assert hint in caught.value.hint


class TestAutotune:
    def test_configs_made_by_a_function(self, tilelang):
        found = tilelang.described()["tuned"]
        sets = [dict(one.constants) for one in found.candidates]
        assert sets == [{"block": block, "dtype": "float32"} for block in (64, 128)]
        assert found.key == ("x.shape.0",)
        assert found.notes == ()

    def test_configs_in_a_list(self, tilelang):
        found = tilelang.described()["tuned_factory"]
        assert [dict(one.constants) for one in found.candidates] == [{"block": 64}]
        assert found.key == ("x.shape.1", "scale")
        (note,) = found.notes
        assert "candidates with `pass_configs` of their own: left out" in note

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("asks", "depend on `rows`, which is known only at run time"),
            ("grid", "are not a list of dictionaries"),
        ],
    )
    def test_configs_that_are_not_taken_over(self, tilelang, name, words):
        found = tilelang.described()[name]
        assert found.candidates == ()
        assert words in found.notes[0]
        with pytest.raises(AssertionError, match=words):
            tilelang.compiled(FLAT.format(name=name) + 'configs = "autotune"\n', "cpu")

    def test_each_candidate_is_compiled(self, tilelang):
        made = tilelang.compiled(FLAT.format(name="tuned") + 'configs = "autotune"\n', "cpu")
        assert [one.image.constants["block"] for one in made] == [64, 128]
        assert {one.image.constants["dtype"] for one in made} == {"float32"}

    def test_the_key(self, tilelang):
        op = WIDE.format(name="tuned_factory").replace(
            "Tensor x)", "Tensor x, int scale, float more)"
        )
        text = op + 'contiguous = true\nconfigs = "autotune"\n'
        assert list(map(str, tilelang.joined(text).key)) == ["columns", "scale"]
        flat = FLAT.format(name="tuned").replace('["n"]', '["..."]') + 'configs = "autotune"\n'
        assert list(map(str, tilelang.joined(flat).key)) == ["numel(x)"]
