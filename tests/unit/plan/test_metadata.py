"""`metadata.json`: key order, round trip, and the `kernels` client's opinion."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.plan.metadata import (
    Builder,
    GitState,
    KernelDependency,
    Metadata,
    MetadataError,
    Provenance,
    UsedToolchain,
    parse_metadata,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FULL = Metadata(
    name="my-relu",
    id="_my_relu_cuda_0a1b2c3",
    version=3,
    license="apache-2.0",
    upstream="https://example.org/a/b",
    source="https://example.org/c/d",
    python_depends=("einops",),
    kernel_depends=(KernelDependency("org/a", 1), KernelDependency("org/b", revision="main")),
    backend="cuda",
    archs=("8.0", "9.0a"),
    kernels_minver="0.17.0",
    digest={"algorithm": "sha256", "files": {"a": "YQ=="}},
    provenance=Provenance(
        Builder(
            "0.1.0",
            git=GitState(COMMIT, True),
            toolchain=UsedToolchain("host", {"c++": "12"}),
            not_run=("load",),
        ),
        GitState(COMMIT, False),
    ),
)
SMALL = Metadata("relu", "_relu_cpu_0", 1, "mit", "cpu")


def test_key_order_and_text() -> None:
    text = FULL.to_json_text()
    assert text.endswith("}\n")
    assert text.startswith('{\n  "name": "my-relu",\n  "id"')
    assert list(json.loads(text)) == [
        "name", "id", "version", "kernels-minver", "license", "upstream", "source",
        "python-depends", "kernel-depends", "backend", "digest", "provenance",
    ]  # fmt: skip


def test_required_keys_are_written_even_when_empty() -> None:
    assert SMALL.to_json() == {
        "name": "relu",
        "id": "_relu_cpu_0",
        "version": 1,
        "license": "mit",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": "cpu"},
    }


@settings(max_examples=30)
@given(
    st.builds(
        Metadata,
        name=st.from_regex(r"[a-z][-a-z0-9]{0,20}[a-z0-9]", fullmatch=True),
        id=st.from_regex(r"_[a-z0-9_]{1,20}", fullmatch=True),
        version=st.integers(0, 10**6),
        license=st.text(min_size=1),
        backend=st.sampled_from(["cpu", "cuda", "rocm"]),
        python_depends=st.lists(st.text()).map(tuple),
        archs=st.none() | st.lists(st.text()).map(tuple),
    )
)
def test_round_trip_of_anything(metadata: Metadata) -> None:
    assert parse_metadata(metadata.to_json_text()) == metadata


CHANGES = {
    "name": ("Relu", "`name` is `Relu`"),
    "id": (3, "`id` is not a string"),
    "version": (True, "`version` is not a whole number"),
    "license": (None, "`license` is missing"),
    "python-depends": (None, "`python-depends` is missing"),
    "kernel-depends": (["a/b"], r"`kernel-depends\[0\]` is not an object"),
    "backend": ({"type": 3}, "`backend.type` is not a string"),
    "upstream": ("not a url", "`upstream` is `not a url`"),
    "digest": ({"algorithm": "md5", "files": {}}, "`digest.algorithm` is `md5`"),
    "provenance": ({}, "`provenance.kernel-builder` is missing"),
    "kernels-minver": ("0.17", "three parts"),
}
MORE = [
    ("version", -1, "`version` is negative"),
    ("backend", {"type": "cuda", "archs": "9.0"}, "`backend.archs` is not a list"),
    ("backend", {"type": "cuda", "archs": [9.0]}, "`backend.archs` is not a list of strings"),
    ("kernel-depends", [{"repo-id": "a/b"}], "either a `version` or a `revision`"),
    ("kernel-depends", [{"repo-id": "a/b", "version": 1, "x": 1}], "is not a key"),
    ("digest", {"algorithm": "sha256"}, "`digest.files` is missing"),
    ("provenance", {"kernel-builder": {"version": "1", "commit": COMMIT}}, "dirty` is missing"),
    ("provenance", {"kernel-builder": {"version": "1", "dirty": True}}, "commit` is missing"),
    (
        "provenance",
        {"kernel-builder": {"version": "1"}, "kernel": {"commit": "abc", "dirty": False}},
        "40 or 64 hex digits",
    ),
]


WRONG = [(key, *rest) for key, rest in CHANGES.items()] + MORE


@pytest.mark.parametrize(("key", "value", "problem"), WRONG)
def test_one_wrong_key(key: str, value: object, problem: str) -> None:
    text = json.dumps(SMALL.to_json() | {key: value})
    with pytest.raises(MetadataError, match=problem):
        parse_metadata(text)


@pytest.mark.parametrize(("key", "value", "problem"), WRONG)
def test_the_client_refuses_the_same(key: str, value: object, problem: str) -> None:
    client = pytest.importorskip("kernels")
    text = json.dumps(SMALL.to_json() | {key: value})
    with pytest.raises(ValueError, match="Cannot parse metadata"):
        client.Metadata.from_bytes(text.encode())


def test_every_problem_at_once() -> None:
    text = json.dumps(SMALL.to_json() | {"name": "X", "version": "1", "backend": {}})
    with pytest.raises(MetadataError) as caught:
        parse_metadata(text)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("metadata", [FULL, SMALL])
def test_the_client_reads_what_is_written(metadata: Metadata) -> None:
    client = pytest.importorskip("kernels")
    read = client.Metadata.from_bytes(metadata.to_json_text().encode())
    assert (read.id, str(read.name), read.version) == (metadata.id, metadata.name, metadata.version)
    if metadata.provenance:
        assert read.provenance.kernel_builder.version == "0.1.0"
        assert read.provenance.kernel.commit == COMMIT
        assert read.provenance.dirty


@pytest.mark.parametrize(
    ("toolchain", "problem"),
    [
        ({"source": "host"}, "versions` is missing"),
        ({"source": "host", "versions": {"c++": 12}}, "versions` does not map names to strings"),
        ({"versions": {}}, "source` is missing"),
    ],
)
def test_a_toolchain_that_says_nothing(toolchain: object, problem: str) -> None:
    document = SMALL.to_json()
    document["provenance"] = {"kernel-builder": {"version": "1", "toolchain": toolchain}}
    with pytest.raises(MetadataError, match=problem):
        parse_metadata(json.dumps(document))
