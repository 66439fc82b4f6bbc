"""Facts of a kernel that is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbuild.project.variant import Variant
from kbuild.publish.card.model import (
    BenchmarkRun,
    CardFacts,
    PublicApi,
    PublicClass,
    PublicFunction,
    Timing,
    VariantFacts,
)

PUBLIC_API = PublicApi(
    names=("relu", "layers", "ops"),
    functions=(PublicFunction("relu", ("x",), ("x",), "Tensor", "Clip at zero."),),
    layers=(PublicClass("ReLU", methods=(PublicFunction("forward", ("x",)),)),),
    doc="A kernel that clips.",
)


def variant(name: str, **facts) -> VariantFacts:
    known = {"size": 1_234_567, "build": "1a2b3c4", "archs": ()} | facts
    return VariantFacts(name, Variant.parse(name), **known)


@pytest.fixture
def facts() -> CardFacts:
    """Facts of one kernel with every part."""
    return CardFacts(
        repo_id="org/relu",
        name="relu",
        version=1,
        license="Apache-2.0",
        public_api=PUBLIC_API,
        variants=(
            variant("torch213-cxx11-cu130-x86_64-linux", archs=("9.0a", "12.0+PTX")),
            variant("torch213-cxx11-cpu-x86_64-linux"),
        ),
        has_benchmark=True,
        runs=(
            BenchmarkRun(
                "gpu",
                "A GPU",
                "Torch 2.13.0, CUDA 13.0",
                "1a2b3c4",
                (Timing("large", 0.05, 0.001, 100, 0.2), Timing("small", 0.004, None, None, 0.004)),
            ),
        ),
        upstream="https://example.org/upstream",
        source="https://example.org/source",
    )


@pytest.fixture
def other_facts(facts) -> CardFacts:
    """The same kernel a version later."""
    public_api = replace(PUBLIC_API, functions=(PublicFunction("relu", ("x", "y"), ("x", "y")),))
    return replace(facts, version=2, public_api=public_api, variants=facts.variants[:1], runs=())
