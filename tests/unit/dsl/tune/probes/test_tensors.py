"""What the programs in the user's interpreter do with tensors."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from kbuild.dsl.tune.probes import devices  # noqa: E402


def difference(found, expected, rtol=None, atol=None) -> str:
    return devices.difference([found], [expected], rtol, atol)


class TestDifference:
    def test_none(self):
        values = torch.randn(100, generator=torch.Generator().manual_seed(0))
        assert difference(values, values.clone()) == ""

    @pytest.mark.parametrize(
        ("dtype", "fine", "wrong"),
        [
            (torch.float64, 1e-8, 1e-6),
            (torch.float32, 1e-4, 1e-2),
            (torch.float16, 5e-3, 5e-2),
            (torch.bfloat16, 8e-3, 1e-1),
        ],
    )
    def test_by_dtype(self, dtype, fine, wrong):
        one = torch.ones(10, dtype=dtype)
        assert difference(one * (1 + fine), one) == ""
        assert difference(one * (1 + wrong), one).startswith("10 of 10 values differ, by up to")

    def test_small_values_among_large_ones(self):
        # What cancels out is as far off as what does not.
        expected = torch.tensor([1000.0, -1000.0, 0.0])
        found = torch.tensor([1000.0, -1000.0, 0.5])
        assert difference(found, expected) == ""
        assert difference(found, expected, atol=0.0).startswith(
            "1 of 3 values differ, by up to 0.5"
        )

    def test_what_was_said(self):
        one = torch.ones(4)
        assert difference(one * 1.1, one, rtol=0.2) == ""
        assert difference(one * 1.1, one, rtol=0.0, atol=0.01)

    def test_not_a_number(self):
        nan = torch.tensor([float("nan"), 1.0])
        assert difference(nan, nan.clone()) == ""
        assert difference(nan, torch.ones(2)) == "1 of 2 values differ, by up to inf"

    def test_integers_are_equal_or_not(self):
        assert difference(torch.tensor([1, 2]), torch.tensor([1, 3])) == "1 of 2 values differ"

    def test_shapes_and_numbers_of_results(self):
        assert "the shape is (2,), (3,) was expected" in difference(torch.ones(2), torch.ones(3))
        assert devices.difference([], [torch.ones(1)], None, None) == "0 results, 1 were expected"


class TestInputs:
    @staticmethod
    def one(dtype: str, shape=(4, 8), **more):
        argument = {"name": "x", "keyword": False, "shape": shape, "dtype": dtype, **more}
        return devices.make_inputs([argument], "cpu")[0]

    @pytest.mark.parametrize("dtype", sorted(devices.RTOL))
    def test_floats(self, dtype):
        made = self.one(dtype)
        assert (made.shape, str(made.dtype)) == ((4, 8), f"torch.{dtype}")
        assert made.float().std() > 0.5

    @pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "int16"])
    def test_integers(self, dtype):
        assert 0 <= int(self.one(dtype).max()) < 8

    def test_they_are_the_same_each_time(self):
        assert torch.equal(self.one("float32"), self.one("float32"))

    def test_none_and_numbers(self):
        assert self.one("float32", shape=None) is None
        assert devices.make_inputs([{"name": "n", "keyword": False, "value": 3}], "cpu") == [3]

    def test_what_is_written_to_is_copied(self):
        arguments = [{"writes": True}, {"writes": False}, {}]
        given = [torch.ones(1), torch.ones(1), 5]
        made = devices.copies(given, arguments)
        assert [one is other for one, other in zip(made, given, strict=True)] == [False, True, True]
        assert devices.results(None, given, arguments) == [given[0]]
        assert devices.results((given[1],), given, arguments) == [given[1], given[0]]


def test_what_a_candidate_wrote_is_undone():
    """Before the next one runs: to what it was, or to what the kernel says."""
    given = [torch.ones(2), torch.ones(2), None, torch.ones(2), 3]
    arguments = [
        {"name": "x", "writes": False},
        {"name": "y", "writes": True},
        {"name": "z", "writes": True, "reset": 0},
        {"name": "w", "writes": True, "reset": "-inf"},
        {"name": "n"},
    ]
    own = devices.copies(given, arguments)
    assert own[0] is given[0]
    assert torch.equal(own[3], torch.full((2,), -torch.inf))
    own[1].add_(5)
    own[3].add_(5)
    devices.restore(own, given, arguments)
    assert torch.equal(own[1], torch.ones(2))
    assert torch.equal(own[3], torch.full((2,), -torch.inf))
    assert torch.equal(given[3], torch.ones(2))


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC",
            "535.104.05",
        ),
        (
            "NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release Build\nGCC: 12.2.0",
            "580.159",
        ),
        ("6.8.5\n", "6.8.5"),
        ("nothing", ""),
    ],
)
def test_the_release_of_a_driver(tmp_path, monkeypatch, text, release):
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(devices, "_DRIVERS", (str(tmp_path / "none"), str(tmp_path / "version")))
    assert devices.driver() == release


def test_lists_of_tensors():
    items = [{"name": f"xs[{at}]", "list": "xs", "item": at, "keyword": False} for at in (0, 1)]
    number = {"name": "n", "keyword": True}
    (xs, values), (n, value) = devices.joined([*items, number], [3, 4, 5])
    assert (xs["name"], values, n, value) == ("xs", [3, 4], number, 5)
    assert devices.chosen({"xs": [6, 7]}, items[1], 4) == 7
    assert devices.chosen({"n": 6}, items[1], 4) == 4
    assert devices.chosen({"n": 6}, number, 5) == 6
