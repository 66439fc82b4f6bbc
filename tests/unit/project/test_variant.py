import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.project.variant import Variant

NAMES = [
    "torch212-cxx11-cpu-x86_64-linux",
    "torch213-cxx11-cu126-x86_64-linux",
    "torch213-cxx11-cu130-aarch64-linux",
    "torch212-cxx11-rocm72-x86_64-linux",
    "torch213-cxx11-xpu20260-x86_64-linux",
    "torch213-metal-aarch64-darwin",
    "torch213-cpu-aarch64-darwin",
    "torch213-cu130-aarch64-windows",
    "torch-stable-abi211-cu130-x86_64-linux",
    "torch-stable-abi211-cpu-aarch64-darwin",
    "tvm-ffi01-cu132-x86_64-linux",
    "tvm-ffi01-cpu-x86_64-linux",
    "torch-cuda",
    "torch-rocm",
    "torch-tpu",
    "torch-npu",
    "torch-universal",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_published_name_round_trips(name: str) -> None:
    assert str(Variant.parse(name)) == name


@given(st.text(max_size=60))
def test_a_name_is_read_back_or_refused(text: str) -> None:
    try:
        variant = Variant.parse(text)
    except ValueError:
        return
    assert str(variant) == text


def test_names_agree_with_the_client() -> None:
    client = pytest.importorskip("kernels.variants")
    for name in NAMES:
        assert client.parse_variant(name).variant_str == name


@pytest.mark.parametrize(
    "name",
    [
        "torch213-cu130-x86_64-linux",
        "torch213-cxx11-metal-aarch64-darwin",
        "torch2-cpu",
        "torch-ext",
        "",
        "build",
    ],
)
def test_names_that_the_builder_never_writes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a variant name"):
        Variant.parse(name)
