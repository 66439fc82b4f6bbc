"""What the cache keeps of an image: all that a launcher is told."""

from __future__ import annotations

import json

from kbuild.ops.image import ImageParameter, KernelImage, TensorMap

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
