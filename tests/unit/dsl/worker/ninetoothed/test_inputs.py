"""What the worker makes of `ninetoothed.build`'s inputs, as far as that needs no NineToothed."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from kbuild.dsl.worker.ninetoothed.generate import unfix_sizes
from kbuild.dsl.worker.ninetoothed.inputs import BuildRecorder, collect
from kbuild.dsl.worker.protocol import RefusalError
from tests.support.ninetoothed_cases import config, merged, tensor

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
    recorder = BuildRecorder()
    kernel = recorder.build(
        premake, CONFIGS, meta_parameters=("block",), kernel_name="add", output_dir="x", lazy=True
    )
    (found,) = collected(recorder)
    assert (found.name, found.configs, found.meta_parameters) == ("add", CONFIGS, ("block",))
    with pytest.raises(RefusalError, match="main guard"):
        kernel(1)


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
        BuildRecorder().build(premake, CONFIGS, caller="torch")


def test_a_size_that_is_constant_in_one_config_is_so_in_all():
    first, second = config(block=1), config(block=2, text="y = 2")
    size = next(one for one in first["parameters"] if one["name"] == "size_x_0")
    first["parameters"][first["parameters"].index(size)] = {**size, "kind": "fixed"}
    first["parameters"].append({**size, "name": "power_x_0", "kind": "power"})
    names, body = entry(merged(first, second).text)
    assert names[-4:] == ["block", "x_size_0", "x_power_0", "wide"]
    assert "x_size_0 if wide" not in body
    assert body.count("x_size_0, ") == 2  # in both calls
    facts = merged(first, second).facts["parameters"]
    kinds = [one["kind"] for one in facts if one["tensor"] == "x"]
    assert kinds == ["pointer", "stride", "fixed", "power"]


PREFIX = "ninetoothed_constexpr_prefix_ninetoothed"


@pytest.mark.parametrize(
    ("body", "stays"),
    [
        ("for i in range(SIZE): pass", False),
        ("store(p + SIZE, load(p, mask=i < SIZE))", False),
        ("store(p, zeros((SIZE, 4), 1))", True),
        ("n = SIZE * 2\n    m = n\n    store(p, full((m,), 0))", True),
        ("n = SIZE * 2\n    store(p, full((4,), 0) + n)", False),
        ("store(p, arange(0, SIZE))", True),
    ],
)
def test_a_constexpr_size_stays_one_where_a_shape_is_made_of_it(body, stays):
    size = f"{PREFIX}_tensor_0_size_1"
    text = f"def k(p, {size}: triton.language.constexpr):\n    {body.replace('SIZE', size)}"
    (function,) = ast.parse(text).body
    unfix_sizes(function)
    assert (function.args.args[1].annotation is not None) == stays


def test_text_that_depends_on_a_dtype_is_chosen_by_it():
    def one(dtype):
        return config({"x": tensor(None, dtype=dtype)}, text=f"x = '{dtype}'", written=["x"])

    made = merged(one("fp16"), one("bf16"))
    _, body = entry(made.text)
    assert "if x_ptr.dtype.element_ty == tl.float16" in body
    assert "elif x_ptr.dtype.element_ty == tl.bfloat16" in body
    assert [each["by_dtype"] for each in made.facts["configs"]] == [True, True]


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
        (config({"x": tensor(None)}, block=2), "has different parameters than the first"),
        (
            config({name: tensor(None, None) for name in ("x", "y", "out")}, block=2),
            "`x` has 2 dimensions, 1 in the first",
        ),
        (config(block=1, text="other"), "has configs that no call can tell apart"),
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


POSITIONS = """\
pid = triton.language.program_id(0)
    at = pid * 512 + triton.language.arange(0, 512)
    for k in range(8):
        value = triton.language.load(p_x + (pid * 512 + triton.language.arange(0, 512)[:,]), \
mask=triton.language.arange(0, 512) < 5, other=triton.language.arange(0, 512))
        triton.language.store(p_out + triton.language.arange(0, 512), \
value + triton.language.arange(0, 512), mask=triton.language.arange(0, 512) < 5)
"""
ARANGE = "triton.language.arange(0, 512)"


def callee(*configs):
    """The function of the first config."""
    functions = ast.parse(merged(*configs).text).body
    (found,) = (one for one in functions if isinstance(one, ast.FunctionDef) and one.name == "k_0")
    return [arg.arg for arg in found.args.args], ast.unparse(found)


def test_the_applications_own_numbers_stay():
    """Random numbers, for one, depend on how many bits their positions have."""
    _, body = callee(config(text=POSITIONS))
    assert f"at = pid * 512 + {ARANGE}" in body
    assert f"other={ARANGE})" in body
    assert f"value + {ARANGE}" in body
    assert "for k in range(8):" in body


@pytest.mark.parametrize(
    ("sizes", "is_long"),
    [((2**31,), True), ((2**16, 2**16), True), ((2**31 - 2**20,), True), ((2**30, None), False)],
)
def test_loops_over_sizes_that_32_bits_do_not_count(sizes, is_long):
    text = "for k in range(2, 8, 3):\n        pass"
    _, body = callee(config({"x": tensor(*sizes), "out": tensor(None)}, text=text))
    assert ("in range(2, tl.cast(8, tl.int64) if wide else 8, 3):" in body) == is_long
