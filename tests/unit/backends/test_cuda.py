"""Capabilities: what a request becomes with each CUDA release, and the flags that it leads to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbuild.backends import BACKENDS
from kbuild.backends.base import Archs
from kbuild.backends.capability import Capability
from kbuild.backends.cuda import CudaSection
from kbuild.project.matrix import arch_table, compatible_arch_chains, read_arch_file
from kbuild.system.version import Version

CUDA = BACKENDS.get("cuda")
RELEASES = ("12.6", "12.8", "12.9", "13.0")

# Request -> result with CUDA 12.6, 12.8, 12.9 and 13.0; None where nothing is left.
GOLDEN = {
    "7.5 8.0 8.6 9.0 9.0a": ("7.5 8.0 8.6 9.0 9.0a",) * 4,
    "9.0a 10.0a 12.0a": ("9.0a", *("9.0a 10.0a 12.0a",) * 3),
    "10.0f": (None, None, "10.0f", "10.0f"),
    "8.0+PTX": ("8.0+PTX",) * 4,
    "9.0a+PTX": ("9.0a+PTX",) * 4,
    "5.0 7.5 8.0 9.0": ("7.5 8.0 9.0",) * 4,
    "7.0": ("7.0", "7.0", "7.0", None),
    "7.0 8.0": ("7.0 8.0", "7.0 8.0", "7.0 8.0", "8.0"),
    "10.0 10.1": (None, "10.0 10.1", "10.0 10.1", "10.0"),
    "10.3a": (None, None, "10.3a", "10.3a"),
    "11.0": (None, None, None, "11.0"),
    "12.1a": (None, None, "12.1a", "12.1a"),
    "12.0 9.0 8.0+PTX 8.0": ("8.0+PTX 9.0", *("8.0+PTX 9.0 12.0",) * 3),
    "19.9": (None,) * 4,
}


def archs(request: str | None, release: str) -> tuple[str, ...]:
    requested = None if request is None else request.split()
    return CUDA.archs(requested, Version.parse(release)).names


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("request_", GOLDEN)
def test_requests(request_, release):
    expected = GOLDEN[request_][RELEASES.index(release)]
    if expected is None:
        with pytest.raises(ValueError, match=f"is a target of CUDA {release}"):
            archs(request_, release)
    else:
        assert archs(request_, release) == tuple(expected.split())


def test_what_is_left_out_is_said():
    found = CUDA.archs(["7.0", "8.0"], Version.parse("13.0"))
    assert found.names == ("8.0",)
    assert found.dropped == ("`7.0` is left out: it is not a target of CUDA 13.0",)


@pytest.mark.parametrize("entry", read_arch_file("cuda")["cuda"], ids=lambda entry: entry["since"])
def test_every_default_is_a_target(entry):
    targets = set(entry["targets"])
    assert {arch.removesuffix("+PTX") for arch in entry["default"]} <= targets


@given(st.lists(st.sampled_from(arch_table("cuda", Version.parse("13.0")).targets), min_size=1))
def test_targets_are_kept_and_order_does_not_matter(requested):
    toolkit = Version.parse("13.0")
    found = CUDA.archs(requested, toolkit)
    assert set(found.names) == set(requested)
    assert found == CUDA.archs(sorted(requested), toolkit)
    assert not found.dropped


def flags(release: str, **keys: object) -> dict[str, tuple[str, ...]]:
    section = CudaSection.model_validate(
        {"backend": "cuda", "depends": [], "src": ["a.cu"]}
        | {key.replace("_", "-"): value for key, value in keys.items()}
    )
    toolkit = Version.parse(release)
    found = CUDA.archs(section.cuda_capabilities, toolkit)
    return dict(CUDA.flags(section, found, toolkit).by_language)


@pytest.mark.parametrize(("release", "kept"), [("12.6", False), ("12.8", True), ("13.0", True)])
def test_cuda_minver(release, kept):
    section = CudaSection.model_validate(
        {"backend": "cuda", "depends": [], "src": ["a.cu"], "cuda-minver": "12.8"}
    )
    assert CUDA.applies(section, Version.parse(release)) is kept


def test_clangd_gets_an_architecture_that_clang_knows():
    hints = CUDA.editor(("8.0", "9.0a", "12.1+PTX"))
    assert hints is not None
    assert hints.add[0] == "--cuda-gpu-arch=sm_80"
    assert CUDA.editor(("12.0",)).add == ("--cuda-path=/usr/local/cuda",)  # type: ignore[union-attr]


def grouped(asked: str | None, release: str, within: str | None = None) -> Archs:
    keys = {"backend": "cuda", "depends": [], "src": ["a.cu"], "cuda-group-archs": True}
    toolkit = Version.parse(release)
    found = CUDA.archs(asked.split() if asked else None, toolkit)
    every = CUDA.archs(within.split(), toolkit) if within else found
    return CUDA.without_shared(CudaSection.model_validate(keys), found, every)


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (None, "7.5 8.0 8.7 9.0 10.0 11.0 12.0+PTX"),
        ("8.0 8.6 8.9", "8.0"),
        ("8.6 8.9", "8.6"),
        ("8.0 8.6+PTX 9.0", "8.0+PTX 9.0"),
        ("8.0 8.7 8.8", "8.0 8.7 8.8"),  # Tegra's own code
        ("9.0 9.0a", "9.0 9.0a"),
        ("10.0 10.0a 10.0f 10.3a 10.3f", "10.0 10.0a 10.0f 10.3a 10.3f"),
        ("12.0a 12.1", "12.0a 12.1"),
    ],
)
def test_one_code_for_gpus_that_run_it(asked, names):
    assert grouped(asked, "13.0").names == tuple(names.split())


def test_a_part_of_the_archs_runs_the_code_of_the_whole_build():
    assert grouped("8.9", "13.0", "8.0 8.6 8.9").names == ("8.0",)
    assert grouped("8.9", "13.0", "8.9 9.0").names == ("8.9",)


@pytest.mark.parametrize("chain", compatible_arch_chains("cuda"))
def test_chains_stay_within_a_major_and_ascend(chain):
    found = [Capability.parse(arch) for arch in chain]
    assert found == sorted(set(found))
    assert len({arch.major for arch in found}) == 1
    assert not any(arch.feature or arch.ptx for arch in found)


@pytest.mark.parametrize(("release", "is_set"), [("12.6", False), ("12.8", True), ("13.0", True)])
def test_code_is_compressed_for_size_where_nvcc_can(release, is_set):
    assert ("--compress-mode=size" in flags(release, cuda_capabilities=["9.0"])["CUDA"]) is is_set
