"""What a launcher is told of an image."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kbuild.languages.image import Image, Parameter

IMAGE = Image(
    language="triton",
    arch="sm_90a",
    kind="cubin",
    entry="add_kernel",
    parameters=(
        Parameter("pointer", "*fp16", "x_ptr"),
        Parameter("int", "i32", "n"),
        Parameter("float", "fp32", "eps"),
        Parameter("int", "u1", "flag"),
        Parameter("tensor_map", "tensor_map", "desc"),
        Parameter("global_scratch", "*i8"),
        Parameter("profile_scratch", "*i8"),
    ),
    shared=49152,
    threads=128,
    cluster=(2, 1, 1),
    scratch=256,
    scratch_align=128,
    registers=64,
    constants={"BLOCK": 1024, "EVEN": True, "ACT": "gelu"},
    divisible=frozenset({"x_ptr", "n"}),
    ones=frozenset({"stride"}),
    types={"x_ptr": "*fp16", "n": "i32"},
    compiler={"triton": "3.9.0", "ptxas": "13.4"},
)


def test_round_trip():
    text = json.dumps(IMAGE.to_json())
    assert Image.from_json(json.loads(text)) == IMAGE
    assert hash(IMAGE) == hash(Image.from_json(json.loads(text)))


def test_target():
    assert str(IMAGE.target) == "sm_90a"
    assert str(dataclasses.replace(IMAGE, arch="sm_80", kind="ptx").target) == "compute_80"
    assert str(dataclasses.replace(IMAGE, arch="gfx942", kind="hsaco").target) == "gfx942"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arch": "sm_9"}, "`sm_9` is no arch of cubin images"),
        ({"arch": "gfx942"}, "`gfx942` is no arch of cubin images"),
        ({"arch": "compute_80", "kind": "ptx"}, "the arch of `compute_80` is `sm_80`"),
        ({"entry": ""}, "its entry is no symbol"),
        ({"entry": "a b"}, "its entry is no symbol"),
        ({"threads": 0}, "0 threads"),
        ({"threads": 2048}, "2048 threads"),
        ({"shared": -1}, "-1 bytes of shared memory"),
        ({"scratch_align": 3}, "scratch memory aligned to 3"),
        ({"cluster": (0, 1, 1)}, "a cluster of"),
        ({"cluster": (8, 4, 1)}, "a cluster of"),
        ({"parameters": IMAGE.parameters[:2]}, "scratch memory, but no parameter for it"),
        ({"parameters": (*IMAGE.parameters, IMAGE.parameters[0])}, "two parameters with one name"),
        ({"divisible": frozenset({"m"})}, "it assumes something of what is no parameter"),
        ({"ones": frozenset({"n"})}, "a parameter that is always 1"),
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
        Parameter(*parameter)


@pytest.mark.parametrize("lost", ["arch", "parameters", "cluster", "shared"])
def test_json_that_is_no_image(lost):
    data = {key: value for key, value in IMAGE.to_json().items() if key != lost}
    with pytest.raises(ValueError, match="not an image"):
        Image.from_json(data)
