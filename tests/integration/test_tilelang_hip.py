"""Objects for AMD's GPUs, called with a HIP runtime that writes down what they do.

The compiler is an installed ROCm's, or Debian's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbuild.toolchains.rocm import RocmInstallation
from tests.support.dsl.tilelang_kernels import TileLangProject, shop
from tests.support.dsl.tilelang_linked import FLAT, PRODUCT, SOURCE, Linked
from tests.support.rocm import ARCHS

pytestmark = pytest.mark.network
ARCH = ARCHS[0]


@pytest.fixture(scope="module")
def tilelang(
    tmp_path_factory: pytest.TempPathFactory, rocm: RocmInstallation
) -> Iterator[TileLangProject]:
    if not (rocm.path / "include" / "hip" / "hip_bf16.h").is_file():
        pytest.skip("needs HIP's headers from 5.7 on, which TileLang's headers include")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(rocm.path))
        with shop(tmp_path_factory.mktemp("tilelang"), SOURCE, keeps=False) as found:
            yield found


@pytest.fixture(scope="module")
def product(tilelang: TileLangProject, tmp_path_factory: pytest.TempPathFactory) -> Linked:
    text = PRODUCT.replace("clusters = 2", "clusters = 1")
    return Linked(tilelang.compiled(text, ARCH), tmp_path_factory.mktemp("linked"), "hip.c")


def test_the_kernels_of_one_function_stay_apart(product):
    kernels = set()
    for index in range(2):
        assert product.call(index) == 0, product.error(index)
        (launch,) = product.said("launch")
        assert launch["stream"] == "0x1234"
        kernels.add(launch["kernel"])
    assert len(kernels) == 2


@pytest.mark.parametrize(
    ("fails", "device", "words"),
    [
        (1, 0, "it cannot be launched: what HIP says"),
        (2, 17, "exceeds device limit 1"),
        (3, 0, "before it was: what HIP says"),
    ],
)
def test_what_fails_is_told_once(product, fails, device, words):
    assert product.call(device=device, fails=fails) == -1
    assert words in product.error()
    assert product.library.fake_cleared()
    assert product.call(device=device) == 0


def test_several_kernels_of_a_function(tilelang, tmp_path):
    source = FLAT.format(name="twice")
    linked = Linked(tilelang.compiled(source, ARCH), tmp_path, "hip.c")
    assert linked.call(size=300) == 0
    assert [one["grid"] for one in linked.said("launch")] == ["3", "3"]


def test_the_same_bytes_every_time(tilelang):
    first, second = (tilelang.compiled(FLAT.format(name="twice"), ARCH)[0] for _ in range(2))
    assert first.code == second.code
    assert first.image.compiler["clang"]
