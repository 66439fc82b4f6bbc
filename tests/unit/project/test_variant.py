import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.project.variant import CPUS, SYSTEMS, System, Variant
from kbuild.system.version import Version

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


releases = st.builds(
    lambda major, minor: Version((major, minor)), st.integers(0, 9), st.integers(0, 99)
)
toolkits = st.builds(
    lambda major, minor: Version((major, minor)), st.integers(1, 9999), st.integers(0, 9)
)
systems = st.builds(System, st.sampled_from(CPUS), st.sampled_from(SYSTEMS))
compiled = st.builds(
    Variant,
    st.sampled_from(["torch", "torch-stable-abi", "tvm-ffi"]),
    st.sampled_from(["cpu", "cuda", "rocm", "xpu", "metal"]),
    releases,
    st.one_of(st.none(), toolkits),
    systems,
)
python_only = st.builds(
    Variant,
    st.just("torch-noarch"),
    st.sampled_from(["cpu", "cuda", "rocm", "xpu", "metal", "cann", "neuron", "tpu"]),
)


@given(st.one_of(compiled, python_only))
def test_round_trip(variant: Variant) -> None:
    assert Variant.parse(str(variant)) == variant


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


def test_backend_is_named_as_in_build_toml() -> None:
    assert Variant.parse("torch213-cxx11-cu126-x86_64-linux").backend == "cuda"
    assert Variant.parse("torch-npu").backend == "cann"


def test_a_minor_of_two_digits_has_no_name() -> None:
    variant = Variant(
        "torch", "rocm", Version((2, 14)), Version((7, 14)), System("x86_64", "linux")
    )
    with pytest.raises(ValueError, match=r"rocm 7\.14 has no variant name"):
        str(variant)
