"""What the worker makes of `ninetoothed.build`'s inputs, as far as that needs no NineToothed."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from types import ModuleType

import pytest
from ninetoothed_cases import config, merged, tensor

from kbuild.languages.worker.ninetoothed.inputs import Recorder, collect
from kbuild.languages.worker.protocol import RefusalError

CONFIGS = (((), {"block": 64}, {}), ((), {"block": 128}, {"num_warps": 4}))


def premake(block, dtype=None):
    raise AssertionError("it is not called here")


def module(**names):
    made = ModuleType("k")
    vars(made).update(names)
    return made


def collected(recorder=None, **names):
    return collect(module(**names), Path("my/k.py"), recorder.calls if recorder else [])


def entry(text, name="k"):
    """The arguments and the body of the function that calls the others."""
    functions = {one.name: one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)}
    return [arg.arg for arg in functions[name].args.args], ast.unparse(functions[name])


def test_a_call_of_build_is_kept():
    recorder = Recorder()
    kernel = recorder.build(
        premake, CONFIGS, meta_parameters=("block",), kernel_name="add", output_dir="x", lazy=True
    )
    (found,) = collected(recorder)
    assert (found.name, found.configs, found.meta_parameters) == ("add", CONFIGS, ("block",))
    with pytest.raises(RefusalError, match="main guard"):
        kernel(1)


def test_a_call_without_a_name_is_called_like_premake():
    recorder = Recorder()
    recorder.build(functools.partial(premake, dtype=None), iter(CONFIGS))
    assert recorder.calls[0].name == "premake"


def test_names_of_a_module_are_inputs():
    (found,) = collected(premake=premake, configs=CONFIGS, meta_parameters=["block"])
    assert (found.name, found.meta_parameters) == ("k", ("block",))
    assert collected(premake=premake, configs=CONFIGS, kernel_name="sum")[0].name == "sum"
    assert collected(premake=premake) == []


def test_several_kernels_in_a_module():
    found = collected(
        a_premake=premake, a_configs=CONFIGS, b_premake=premake, b_configs=CONFIGS[:1],
        other_premake=premake, unpremake=premake, unconfigs=CONFIGS,
    )  # fmt: skip
    assert {one.name: len(one.configs) for one in found} == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ([], "`k` has no configs"),
        ([((), {})], "config 1 of `k` is not `(args, kwargs, compilation_configs)`"),
        ([(), 3], "config 1 of `k` is not"),
        ([((1,), {}, {"num_ctas": 2})], "config 1 of `k` sets `num_ctas`; known: num_warps"),
        ([((1,), {}, {"num_warps": (4, 8)})], "config 1 of `k` sets `num_warps` to (4, 8)"),
    ],
)
def test_configs_that_build_does_not_take(configs, said):
    with pytest.raises(RefusalError) as refusal:
        collected(premake=premake, configs=configs)
    assert said in refusal.value.message


def test_a_meta_parameter_that_is_none():
    with pytest.raises(RefusalError, match="`meta_parameters` of `k` has `size`"):
        collected(premake=premake, configs=CONFIGS, meta_parameters=["size"])


def test_another_caller():
    with pytest.raises(RefusalError, match="caller='torch'"):
        Recorder().build(premake, CONFIGS, caller="torch")


def test_what_differs_is_a_constant():
    both = [config(block=64, m=512), config(block=128, m=512)]
    names, _ = entry(merged(*both).text)
    assert names[-2:] == ["block", "wide"]
    names, _ = entry(merged(both[0], meta=["m"]).text)
    assert names[-2:] == ["m", "wide"]


def test_true_is_not_one():
    names, body = entry(merged(config(flag=True, text="a = 1"), config(flag=1, text="a = 2")).text)
    assert "flag" in names
    assert "if flag == True" in body


def test_configs_with_one_text_share_a_function():
    text = merged(config(block=1), config(block=2), config(block=3, text="x = 3")).text
    names = [one.name for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)]
    assert names == ["k_0", "k_1", "k"]


def test_sizes_and_strides_are_narrowed():
    _, body = entry(merged().text)
    assert "x_size_0 if wide else tl.cast(x_size_0, tl.int32)" in body
    assert "k_0(x_ptr, " in body


def test_a_constant_tensor_is_written_into_the_call():
    tensors = {"out": tensor(None), "alpha": tensor(dtype="fp32", constant=True, value=2.5)}
    names, body = entry(merged(config(tensors)).text)
    assert "alpha" not in names
    assert "2.5)" in body


def test_text_that_depends_on_a_dtype_is_chosen_by_it():
    def one(dtype):
        return config({"x": tensor(None, dtype=dtype)}, text=f"x = '{dtype}'", written=["x"])

    made = merged(one("fp16"), one("bf16"))
    _, body = entry(made.text)
    assert "if x_ptr.dtype.element_ty == tl.float16" in body
    assert "elif x_ptr.dtype.element_ty == tl.bfloat16" in body
    assert [each["by_dtype"] for each in made.facts["configs"]] == [True, True]


def test_names_of_constants_do_not_clash():
    tensors = {"out": tensor(None), "n": tensor(dtype="i32")}
    made = merged(
        config(tensors, n=1, wide=1, num_warps=1), config(tensors, n=2, wide=2, num_warps=2)
    )
    names, _ = entry(made.text)
    assert names[-4:] == ["n_", "wide", "num_warps_", "wide_"]
    assert made.facts["wide"] == "wide_"


def test_helpers_come_along_once():
    helper = "@triton.jit\ndef relu(x):\n    return x"
    both = [{**config(block=block), "helpers": {"relu": helper}} for block in (1, 2)]
    text = merged(*both).text
    assert text.count("def relu(") == 1
    assert text.count("@triton.jit") == 3
    both[1]["helpers"] = {"relu": helper.replace("return x", "return -x")}
    with pytest.raises(RefusalError, match="two functions are called `relu`"):
        merged(*both)


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (config({"x": tensor(None)}, block=2), "has other parameters than the first"),
        (
            config({name: tensor(None, None) for name in ("x", "y", "out")}, block=2),
            "`x` has 2 dimensions, 1 in the first",
        ),
        (config(block=1, text="other"), "differ in nothing that a call can have"),
    ],
)
def test_configs_that_do_not_belong_together(second, said):
    with pytest.raises(RefusalError) as refusal:
        merged(config(block=1), second)
    assert said in refusal.value.message


def test_parameters_that_would_have_one_name():
    tensors = {"x": tensor(None), "x_size_0": tensor(dtype="i32"), "out": tensor(None)}
    with pytest.raises(RefusalError, match="two parameters would be called `x_size_0`"):
        merged(config(tensors))


def test_bounds_are_kept_for_tuning():
    one = {"x": tensor(None, bounds=[1 << 20]), "out": tensor(None)}
    assert merged(config(one)).facts["tensors"]["x"]["bounds"] == [1 << 20]
