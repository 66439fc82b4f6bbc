"""Objects for GPUs as they are shipped, called with a CUDA runtime that writes down what they do.

TileLang writes a library of its own: one initialisation for one device, every launch free to begin
before the one before it has ended, and the same names in every object.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbuild.system.errors import BuildError
from tests.support.dsl.tilelang_kernels import TileLangProject, shop
from tests.support.dsl.tilelang_linked import FLAT, PRODUCT, SOURCE, Linked

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def tilelang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TileLangProject]:
    with shop(tmp_path_factory.mktemp("tilelang"), SOURCE) as found:
        yield found


@pytest.fixture(scope="module")
def product(tilelang, tmp_path_factory: pytest.TempPathFactory) -> Linked:
    """Both candidates for Hopper, and one for another chip: three objects of one function."""
    objects = tilelang.compiled(PRODUCT, "sm_90a")
    other = tilelang.compiled(PRODUCT.replace(", { rows = 128, clusters = 2 }", ""), "sm_80")
    return Linked((*objects, *other), tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def waits(tilelang, tmp_path_factory: pytest.TempPathFactory) -> Linked:
    objects = tilelang.compiled(FLAT.format(name="waits"), "sm_90a")
    return Linked(objects, tmp_path_factory.mktemp("waits"))


def test_the_kernels_of_one_function_stay_apart(product):
    kernels = set()
    for index in range(3):
        assert product.call(index) == 0, product.error(index)
        kernels |= {one["kernel"] for one in product.said("launch")}
    assert len(kernels) == 3


def test_the_stream_is_the_callers(product):
    product.call()
    assert [one["stream"] for one in product.said("launch")] == ["0x1234"]


def test_no_launch_begins_early_by_itself(product):
    for index in range(3):
        product.call(index)
        assert [one["pdl"] for one in product.said("launch")] == ["0"]


def test_clusters(product):
    found = []
    for index in range(2):
        product.call(index)
        found += [one["cluster"] for one in product.said("launch")]
    assert found == ["1", "2"]


def test_only_the_kernel_that_waits_may_begin_early(waits):
    assert waits.call() == 0
    assert [one["pdl"] for one in waits.said("launch")] == ["1", "0"]


def test_each_device_is_prepared_once_for_each_object(product):
    seen = []
    for device in (3, 4, 3, 4):
        for index in (0, 2):
            assert product.call(index, device=device) == 0, product.error(index)
            seen += [(index, device) for one in product.said("prepare") if one["attribute"] == "8"]
            assert {one["device"] for one in product.said("prepare")} <= {str(device)}
    assert seen == [(0, 3), (2, 3), (0, 4), (2, 4)]


def test_an_empty_result_is_no_launch(product):
    assert product.call(device=1, size=0) == 0
    assert product.said("launch") == []


@pytest.mark.parametrize(("fails", "device"), [(1, 0), (2, 17)])
def test_what_fails_is_told_and_torch_does_not_find_it(product, fails, device):
    assert product.call(device=device, fails=fails) == -1
    assert "what CUDA says" in product.error()
    assert product.library.fake_cleared() >= 1
    assert product.call(device=device) == 0, "and the device is prepared by the next call"


def test_what_is_of_the_whole_device(tilelang):
    with pytest.raises(BuildError, match=r"`kept` keeps tensors in the L2 cache") as caught:
        tilelang.compiled(FLAT.format(name="kept") + "constants = { wide = 1024 }\n", "sm_90a")
    assert "annotate_l2_hit_ratio" in caught.value.hint


def test_an_older_release(tmp_path):
    """What it writes is changed in the same places."""
    with shop(tmp_path / "older", SOURCE, pin="tilelang==0.1.12") as older:
        names = ("waits", "twice")
        objects = [one for n in names for one in older.compiled(FLAT.format(name=n), "sm_90a")]
    linked = Linked(objects, tmp_path)
    found = []
    for index in range(2):
        assert linked.call(index) == 0, linked.error(index)
        found += [(one["pdl"], one["stream"]) for one in linked.said("launch")]
    assert found == [("1", "0x1234"), ("0", "0x1234"), ("0", "0x1234"), ("0", "0x1234")]
