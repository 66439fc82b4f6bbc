from __future__ import annotations

import pytest

from kbuild.plan.selection import (
    Selection,
    environment_variants,
    parse_torch_release,
    select_variants,
)
from kbuild.project.matrix import matrix_entries
from kbuild.project.variant import System, Variant
from kbuild.system.errors import UsageError
from kbuild.system.version import Version
from tests.support.projects import BINDING, kernel

LINUX = Selection(systems=(System("x86_64", "linux"),))


def names(choices) -> list[str]:
    return [str(choice.variant) for choice in choices]


def test_the_published_bundle_is_covered() -> None:
    found = {
        str(Variant("torch", e.backend, e.torch, e.backend_version, e.system))
        for e in matrix_entries()
    }
    assert {
        "torch212-cxx11-cu126-x86_64-linux",
        "torch213-cxx11-cu132-aarch64-linux",
        "torch213-metal-aarch64-darwin",
        "torch213-cxx11-rocm72-x86_64-linux",
        "torch213-cxx11-xpu20260-x86_64-linux",
        "torch215-cxx11-cu132-x86_64-linux",
    } <= found


def test_a_plain_selection_leaves_out_what_must_be_named(project) -> None:
    made = project(BINDING, kernel("cpu"))
    assert "torch211-cxx11-cpu-x86_64-linux" not in names(select_variants(made, LINUX))
    named = Selection(torch=(Version((2, 11)),), systems=LINUX.systems)
    assert names(select_variants(made, named)) == ["torch211-cxx11-cpu-x86_64-linux"]


def test_globs_select_by_name(project) -> None:
    made = project(BINDING, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))
    found = names(select_variants(made, Selection(globs=("torch213-*-cpu-*",))))
    assert found == ["torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-aarch64-linux"]


def test_a_glob_that_matches_nothing_names_the_nearest(project) -> None:
    with pytest.raises(UsageError) as caught:
        select_variants(
            project(BINDING, kernel("cpu")), Selection(globs=("torch213-cxx11-cpu-x86-linux",))
        )
    assert "did you mean `torch213-cxx11-cpu-x86_64-linux`" in str(caught.value)


def test_bounds_are_inclusive(project) -> None:
    bounded = BINDING + 'minver = "2.12"\nmaxver = "2.13"\n'
    cuda = '\n[general.cuda]\nminver = "13.0"\nmaxver = "13.0"\n'
    made = project(bounded, kernel("cuda"), cuda, backends=("cuda",))
    assert names(select_variants(made, LINUX)) == [
        "torch212-cxx11-cu130-x86_64-linux",
        "torch213-cxx11-cu130-x86_64-linux",
    ]


def test_the_stable_abi_needs_one_build_for_all_releases(project) -> None:
    made = project(BINDING + 'stable-abi = "2.12"\n', kernel("cpu"))
    (choice,) = select_variants(made, LINUX)
    assert str(choice.variant) == "torch-stable-abi212-cpu-x86_64-linux"
    assert choice.torch == max(entry.torch for entry in matrix_entries() if entry.backend == "cpu")


def test_the_stable_abi_can_differ_by_backend(project) -> None:
    table = '\n[torch]\nsrc = ["torch-ext/binding.cpp"]\nstable-abi = { cuda = "2.11" }\n'
    made = project(table, kernel("cpu"), kernel("cuda"), backends=("cpu", "cuda"))
    found = names(select_variants(made, LINUX))
    assert "torch-stable-abi211-cu130-x86_64-linux" in found
    assert "torch213-cxx11-cpu-x86_64-linux" in found
    assert not any("cxx11-cu" in name for name in found)


def test_a_stable_variant_serves_every_later_release(project) -> None:
    made = project(BINDING + 'stable-abi = "2.12"\n', kernel("cpu"))
    later, earlier = (Selection(torch=(Version((2, minor)),)) for minor in (14, 11))
    assert "torch-stable-abi212-cpu-x86_64-linux" in names(select_variants(made, later))
    with pytest.raises(UsageError, match=r"no variant for Torch 2\.11") as refused:
        select_variants(made, earlier)
    assert "it has variants for 2.12 to 2." in refused.value.hint


def test_environments_exist_for_python_only_kernels_too(project) -> None:
    made = project("\n[torch-noarch]\n", backends=("cuda",))
    assert names(select_variants(made, Selection())) == ["torch-cuda"]
    assert "torch213-cxx11-cu130-x86_64-linux" in names(environment_variants(made, LINUX))


@pytest.mark.parametrize("text", ["2.20", "2.2", "2", "v2.13", "2.13.0+cu130", "2.13.", ""])
def test_other_torch_releases_are_an_error_that_lists_those_that_are_known(text):
    with pytest.raises(UsageError, match="is not a Torch release") as raised:
        parse_torch_release(text)
    assert "2.13, 2.14" in raised.value.hint
