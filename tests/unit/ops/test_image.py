"""What a launcher is told of an image."""

from __future__ import annotations

import dataclasses
import json

import pytest

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "sm_9"}, "`sm_9` is not an arch of cubin images"),
        ({"arch": "gfx942"}, "`gfx942` is not an arch of cubin images"),
        ({"arch": "compute_80", "kind": "ptx"}, "the arch of `compute_80` is `sm_80`"),
        ({"entry": ""}, "its entry is not a symbol"),
        ({"entry": "a b"}, "its entry is not a symbol"),
        ({"threads": 0}, "0 threads"),
        ({"threads": 2048}, "2048 threads"),
        ({"shared": -1}, "-1 bytes of shared memory"),
        ({"scratch_align": 3}, "scratch memory aligned to 3"),
        ({"cluster": (0, 1, 1)}, "a cluster of"),
        ({"cluster": (8, 4, 1)}, "a cluster of"),
        (
            {"parameters": IMAGE.parameters[:2], "tensor_maps": ()},
            "scratch memory, but no parameter for it",
        ),
        ({"parameters": (*IMAGE.parameters, IMAGE.parameters[0])}, "two parameters with one name"),
        ({"divisible": frozenset({"m"})}, "it makes an assumption about an unknown parameter"),
        ({"ones": frozenset({"n"})}, "a parameter that is always 1"),
        ({"tensor_maps": ()}, "tensor maps and parameters differ"),
        ({"tensor_maps": (TensorMap("other", (64,), 2, 6, 3),)}, "tensor maps and parameters"),
    ],
)
def test_what_no_image_is(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(IMAGE, **change)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (("scalar", "i32", "n"), "`scalar` is not a kind of parameter"),
        (("int", "fp32", "n"), "`n` has the type `fp32`"),
        (("int", "i33", "n"), "`n` has the type `i33`"),
        (("pointer", "fp32", "p"), "`p` has the type `fp32`"),
        (("float", "f32", "x"), "`x` has the type `f32`"),
        (("int", "i32", ""), "`int` without a name"),
        (("global_scratch", "*i8", "s"), "`global_scratch` with the name"),
        (("global_scratch", "i64", ""), "`global_scratch` has the type `i64`"),
    ],
)
def test_what_no_parameter_is(parameter, words):
    with pytest.raises(ValueError, match=words):
        ImageParameter(*parameter)


@pytest.mark.parametrize(
    ("block", "size", "swizzle", "words"),
    [
        ((), 2, 0, "copied in boxes of"),
        ((1, 2, 3, 4, 5, 6), 2, 0, "copied in boxes of"),
        ((512,), 2, 0, "copied in boxes of"),
        ((0,), 2, 0, "copied in boxes of"),
        ((64,), 3, 0, "is not a tensor map"),
        ((64,), 2, 4, "is not a tensor map"),
    ],
)
def test_what_no_tensor_map_is(block, size, swizzle, words):
    with pytest.raises(ValueError, match=words):
        TensorMap("d", block, size, 6, swizzle)


@pytest.mark.parametrize("lost", ["arch", "parameters", "cluster", "shared", "tensor_maps"])
def test_json_that_is_no_image(lost):
    data = {key: value for key, value in IMAGE.to_json().items() if key != lost}
    with pytest.raises(ValueError, match="not an image"):
        KernelImage.from_json(data)
