"""What holds for every backend."""

from __future__ import annotations

import pytest

from kbuild.backends import BACKENDS
from kbuild.backends.base import Archs
from kbuild.plan.metadata import Metadata
from kbuild.project.matrix import arch_entry, deployment_target
from kbuild.system import rendering
from kbuild.system.version import Version

CMAKE_LANGUAGES = {"C", "CXX", "CUDA", "HIP", "OBJC", "OBJCXX"}
COMPILED = [backend for backend in BACKENDS if backend.section is not None]


@pytest.mark.parametrize("backend", COMPILED, ids=lambda backend: backend.name)
def test_every_language_is_cmakes_or_ours(backend):
    for language in backend.languages:
        ours = rendering.exists(f"project/cmake/languages/{language}.cmake")
        assert ours or language in CMAKE_LANGUAGES


@pytest.mark.parametrize("backend", COMPILED, ids=lambda backend: backend.name)
def test_sources_and_headers(backend):
    assert backend.language_of("a.cpp") == "CXX"
    assert backend.language_of("a.h") is None
    for suffix in backend.device_suffixes:
        assert backend.language_of(f"a{suffix}") == backend.languages[-1]


@pytest.mark.parametrize("backend", COMPILED, ids=lambda backend: backend.name)
def test_cxx_flags_reach_c_plus_plus_last(backend):
    table = {"backend": backend.name, "depends": [], "src": [], "cxx-flags": ["-Wall"]}
    section = backend.section.model_validate(table)
    flags = dict(backend.flags(section, Archs(), Version.parse("2026.0")).by_language)
    assert flags["CXX"][-1] == "-Wall"


@pytest.mark.parametrize("name", [*BACKENDS.names(), "acme"])
def test_the_client_reads_metadata_of_those_that_say_so(name):
    client, known = pytest.importorskip("kernels"), BACKENDS.find(name)
    text = Metadata("relu", "_relu_x_1", 1, "mit", name).to_json_text()
    if known is not None and known.in_client:
        assert client.Metadata.from_bytes(text.encode()).id == "_relu_x_1"
    else:
        with pytest.raises(ValueError, match="Cannot parse metadata"):
            client.Metadata.from_bytes(text.encode())


def test_metal_shaders_and_hosts():
    metal = BACKENDS.get("metal")
    assert metal.language_of("a.metal") == "METAL"
    assert metal.language_of("a.mm") == "OBJCXX"
    assert metal.language_of("a.m") == "OBJC"


def test_deployment_targets():
    assert deployment_target("metal") == "26.0"
    assert deployment_target("cpu") == "15.0"


def test_a_release_older_than_the_table():
    with pytest.raises(ValueError, match=r"9\.2 is older than 11\.8"):
        arch_entry("cuda", Version.parse("9.2"))


def test_the_newest_entry_stands_for_any_release():
    assert arch_entry("cuda", None)["since"] == "13.4"
