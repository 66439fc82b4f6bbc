"""What holds for every backend."""

from __future__ import annotations

import pytest

from kbuild.backends import BACKENDS
from kbuild.plan.metadata import Metadata
from kbuild.system import rendering

CMAKE_LANGUAGES = {"C", "CXX", "CUDA", "HIP", "OBJC", "OBJCXX"}
COMPILED = [backend for backend in BACKENDS if backend.section is not None]


@pytest.mark.parametrize("backend", COMPILED, ids=lambda backend: backend.name)
def test_every_language_is_cmakes_or_ours(backend):
    for language in backend.languages:
        ours = rendering.exists(f"project/cmake/languages/{language}.cmake")
        assert ours or language in CMAKE_LANGUAGES


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
