"""`aot.json` of a variant for tuning, and what the cache keeps of an image."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbuild.ops.image import ImageParameter, KernelImage, TensorMap
from kbuild.ops.manifest import MANIFEST_FILE, ManifestKernel, OpManifest, read_manifest
from kbuild.ops.model import TuneProposal
from kbuild.ops.steps import Candidate
from kbuild.system.errors import UsageError
from tests.support.sections import read, text_of

TEXT = text_of(
    let='{ z = "numel(x)", y = "z + 1", a = "y + 1" }',
    key='["a"]',
    configs="""[
      { BLOCK = 128, num_warps = 4, when = "BLOCK >= N" },
      { BLOCK = 256, num_warps = 8, archs = ["9.0"] },
    ]""",
    tune="{ sizes = { N = [1, 2] } }",
)


def described(text: str = TEXT) -> OpManifest:
    launches = [launch.candidates for op in read(text).ops for launch in op.launches]
    kernel = ManifestKernel(read(text), tuple(launches))
    return OpManifest("_k_cuda_1", (kernel,), (("ptxas", "13.0"), ("triton", "3.9.0")))


def test_there_and_back(tmp_path):
    (tmp_path / MANIFEST_FILE).write_text(described().text())
    found = read_manifest(tmp_path)
    assert found == described()
    (op,) = found.kernels[0].ops()
    assert op == read(TEXT).ops[0]
    assert [name for name, _ in op.let] == ["z", "y", "a"]
    when = op.launches[0].candidates[0].when
    assert (when.evaluate({"N": 128}), when.evaluate({"N": 129})) == (1, 0)


def test_candidates_of_the_kernel_itself():
    section = read(text_of(configs='"autotune"'))
    own = (Candidate((("BLOCK", 64),)), Candidate((("BLOCK", 32),), (("num_warps", 2),)))
    described = OpManifest("n", (ManifestKernel(section, (own,)),))
    (op,) = OpManifest.from_json(json.loads(described.text())).kernels[0].ops()
    assert op.launches[0].candidates == own


def test_what_tuning_resets_comes_along():
    (kernel,) = described().kernels
    one = OpManifest("n", (replace(kernel, resets=(("k", (("x", "-inf"), ("out", 0))),)),))
    found = OpManifest.from_json(json.loads(one.text()))
    assert found == one
    (op,) = found.kernels[0].ops()
    assert op.tune.resets == (("x", "-inf"), ("out", 0))
    assert one.measured() != described().measured()


def test_proposed_sizes_come_along():
    proposals = (TuneProposal((("N", 512),)), TuneProposal((), (("N", 1 << 20),)))
    (kernel,) = described().kernels
    one = OpManifest("n", (replace(kernel, proposals=(("k", proposals),)),))
    found = OpManifest.from_json(json.loads(one.text()))
    assert found == one
    assert found.kernels[0].ops()[0].tune.proposals == proposals
    assert found.measured() == replace(one, kernels=(kernel,)).measured()


def test_what_times_depend_on():
    one = described()
    assert replace(one, namespace="_k_cuda_2").measured() == one.measured()
    assert described(TEXT.replace("[1, 2]", "[3]")).measured() == one.measured()
    assert replace(one, images="f" * 64).measured() != one.measured()
    assert described(TEXT.replace("= 256", "= 512")).measured() != one.measured()
    assert described(TEXT.replace("cdiv(N", "cdiv(1 + N")).measured() != one.measured()


def test_kernels_are_in_the_order_of_their_names():
    one = described().kernels[0]
    both = OpManifest("n", (ManifestKernel(replace(one.section, name="z"), one.candidates), one))
    assert [kernel["name"] for kernel in both.to_json()["kernels"]] == ["k", "z"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "its format is 2"),
        ({"kernels": None}, "not a description"),
        ({"kernels": [{"name": "k"}]}, "not a description"),
        ({"versions": None}, "not a description"),
    ],
)
def test_what_is_wrong(tmp_path, change, words):
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(described().to_json() | change))
    with pytest.raises(UsageError, match=words):
        read_manifest(tmp_path)


def test_sections_and_candidates_that_do_not_fit(tmp_path):
    data = described().to_json()
    data["kernels"][0]["launches"].append([])
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"`kernel\.k` has 1 launches"):
        read_manifest(tmp_path)
    data["kernels"][0]["section"]["op"][0]["dtypes"] = "float61"
    (tmp_path / MANIFEST_FILE).write_text(json.dumps(data))
    with pytest.raises(UsageError, match="is not a dtype"):
        read_manifest(tmp_path)


IMAGE = KernelImage(
    language="triton",
    arch="sm_90a",
    kind="cubin",
    entry="add_kernel",
    parameters=(
        ImageParameter("pointer", "*fp16", "x_ptr"),
        ImageParameter("int", "i32", "n"),
        ImageParameter("float", "fp32", "eps"),
        ImageParameter("int", "u1", "flag"),
        ImageParameter("tensor_map", "tensor_map", "desc"),
        ImageParameter("int", "i32", "desc.shape.0"),
        ImageParameter("int", "i64", "desc.stride.0"),
        ImageParameter("global_scratch", "*i8"),
        ImageParameter("profile_scratch", "*i8"),
    ),
    shared=49152,
    threads=128,
    cluster=(2, 1, 1),
    scratch=256,
    scratch_align=128,
    tensor_maps=(TensorMap("desc", (64,), 2, 6, 3),),
    registers=64,
    constants={"BLOCK": 1024, "EVEN": True, "ACT": "gelu"},
    divisible=frozenset({"x_ptr", "n"}),
    ones=frozenset({"stride"}),
    types={"x_ptr": "*fp16", "n": "i32"},
    compiler={"triton": "3.9.0", "ptxas": "13.4"},
)


def test_round_trip():
    text = json.dumps(IMAGE.to_json())
    assert KernelImage.from_json(json.loads(text)) == IMAGE
    assert hash(IMAGE) == hash(KernelImage.from_json(json.loads(text)))
