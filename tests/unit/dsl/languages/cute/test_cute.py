"""CuTe DSL as a language: pins, archs, environments, and what a unit asks of the worker."""

from __future__ import annotations

import pytest

from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.expand import expand
from kbuild.ops.image import KernelImage
from kbuild.ops.language import LANGUAGES
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError, ToolchainError
from tests.support.sections import read

PINS = ("nvidia-cutlass-dsl==4.8.1",)
HEAD = """
[kernel.k]
backend = "cuda"
language = "cute"
toolchain = "nvidia-cutlass-dsl==4.8.1"
src = ["k.py"]

[[kernel.k.op]]
"""


def cute():
    return LANGUAGES.get("cute")


def bound_of(op, names, issues=None):
    parameters = [KernelParameter(name.rstrip("!"), name.endswith("!")) for name in names]
    place = IssueCollector((), [] if issues is None else issues)
    return bind(op, op.launches[0], {"f": parameters}, place)


def op_of(text):
    reading = read(HEAD + text)
    assert [i for i in reading.issues if i.severity == "error"] == []
    return reading.ops[0]


def requests(text, names, *targets):
    op = op_of(text)
    bound = bound_of(op, names)
    assert bound is not None
    units = expand(op, [ImageTarget.parse(target) for target in targets or ("sm_90a",)])
    return [(unit, cute().request(unit, bound)) for unit in units]


class TestPins:
    def test_the_one_that_is_needed(self):
        assert cute().unsupported_reason(PINS) is None
        assert "pins no exact release" in cute().unsupported_reason(("nvidia-cutlass-dsl",))
        assert "pins no exact release" in cute().unsupported_reason(("triton==3.9.0",))

    def test_releases_that_need_a_driver(self):
        words = cute().unsupported_reason(("nvidia-cutlass-dsl==4.4.2",))
        assert "pins nvidia-cutlass-dsl 4.4.2" in words
        assert "libcuda.so.1" in words
        assert "4.5 and later" in words

    def test_the_environment_has_one_cuda(self):
        twelve, thirteen = (cute().environment(PINS, flavour) for flavour in ("cuda12", "cuda13"))
        assert twelve[0] == thirteen[0] == PINS[0]
        assert "nvidia-cutlass-dsl-libs-cu12==4.8.1" in twelve
        assert "nvidia-cutlass-dsl-libs-cu13==4.8.1" in thirteen
        assert not any("cu12" in pin for pin in thirteen)
        assert not any("torch" in pin for pin in (*twelve, *thirteen))
        assert all("==" in pin and "{" not in pin for pin in (*twelve, *thirteen))

    def test_own_pins_take_the_place_of_facts(self):
        found = cute().environment((*PINS, "apache-tvm-ffi == 0.1.12", "einops==0.8.0"), "cuda13")
        assert [pin for pin in found if pin.startswith("apache")] == ["apache-tvm-ffi==0.1.12"]
        assert "einops==0.8.0" in found


class TestTargets:
    @pytest.mark.parametrize(
        ("archs", "targets"),
        [
            (None, ["sm_80", "sm_90a", "sm_100a", "sm_120a"]),
            (("8.6", "9.0", "9.0a"), ["sm_86", "sm_90a"]),
            (("10.0f", "12.0"), ["sm_100f", "sm_120a"]),
        ],
    )
    def test_archs(self, archs, targets):
        assert [str(one) for one in cute().targets("cuda", archs, "13.0", PINS).targets] == targets

    def test_what_is_left_out_is_said(self):
        found = cute().targets("cuda", ("7.5", "9.0+PTX"), "13.0", PINS)
        assert [str(one) for one in found.targets] == ["sm_90a"]
        assert found.notes == (
            "7.5: nvidia-cutlass-dsl is not known to compile for it; left out",
            "9.0+PTX: objects of nvidia-cutlass-dsl hold no PTX; later GPUs need a rebuild",
        )
        assert cute().targets("rocm", ("gfx942",), "6.4", PINS).targets == ()

    def test_a_runtime_that_lacks_what_objects_call(self):
        found = cute().targets("cuda", None, "12.6", PINS)
        assert found.targets == ()
        assert 'write `minver = "12.8"` in `[general.cuda]`' in found.notes[0]
        assert cute().targets("cuda", None, "12.8", PINS).targets


class TestRequests:
    def test_none(self):
        op = """
schema = "f(Tensor x, Tensor? w) -> Tensor out"
shapes = { x = ["N"], w = ["N"], out = "x" }
dtypes = ["float16"]
"""
        asked = next(r for u, r in requests(op, ("x", "w", "out")) if u.absent)
        assert asked["arguments"][1] == {"name": "w", "kind": "none"}

    @pytest.mark.parametrize(
        ("constants", "fixed"),
        [
            ('N = { value = "N", choices = [64, 96] }', {"N", "2 * N"}),
            ('block = { value = "N", choices = [64, 96] }', {"N", "2 * N"}),
            ('block = { value = "size(x, -1)", choices = [64, 96] }', {"N", "2 * N"}),
            ('block = { value = "size(out, 0)", choices = [64, 96] }', {"M"}),
            ('block = { value = "width", choices = [64, 96] }', {"N", "2 * N"}),
            ('block = { value = "2 * N", choices = [64, 96] }', {"2 * N"}),
            ('block = { value = "stride(x, 0)", choices = [64, 96] }', {"x.stride.0"}),
            ('M = { value = "M", choices = [7] }, N = { value = "N", choices = [64] }',
             {"M", "N", "2 * N"}),
            ('N = { value = "N", choices = [64] }, block = "2 * N"', {"N", "2 * N"}),
            ('block = { value = "N - 64", choices = [0, 32] }', set()),
            ('block = { value = "next_pow2(N)", choices = [64, 128] }', set()),
            ('block = { value = "N", choices = { 64 = 1, 96 = 1 } }', set()),
            ('block = { value = "n", choices = [64, 96] }', set()),
            ('block = "N == 64"', set()),
            ("block = 64", set()),
        ],
    )  # fmt: skip
    def test_dimensions_that_constants_fix(self, constants, fixed):
        """Each has the value of the constant that is chosen by it; all others are dynamic."""
        text = (
            'schema = "f(Tensor x, int n, Tensor(a!) out) -> ()"\ndtypes = ["int8"]\n'
            'shapes = { x = ["M", "N"], out = ["M", "2 * N"] }\ncontiguous = ["out"]\n'
            'let = { width = "N" }\n'
            f"constants = {{ {constants} }}\n"
        )
        text += "" if "block" in constants else "configs = [{ block = 1 }]\n"
        for unit, asked in requests(text, ("x", "out", "block!")):
            x, out, values = *asked["arguments"], dict(unit.constants)
            found = dict(zip(("M", "N", "2 * N"), (*x["shape"], out["shape"][1]), strict=True))
            found["x.stride.0"] = x["strides"][0]
            assert found["M"] == out["shape"][0]
            assert {name for name, size in found.items() if isinstance(size, int)} == fixed
            chosen = values.get("N", values.get("block"))
            if "N" in fixed:
                assert (found["N"], found["2 * N"]) == (chosen, 2 * chosen)
            assert isinstance(x["strides"][1], dict)
            assert asked["constants"].keys() <= {"block"}

    def test_a_size_that_no_call_has_stays_dynamic(self):
        text = (
            'schema = "f(Tensor(a!) x) -> ()"\ndtypes = ["int8"]\nshapes = { x = ["N"] }\n'
            'constants = { N = { value = "N", choices = [0, 64] } }\n'
        )
        sizes = [asked["arguments"][0]["shape"][0] for _, asked in requests(text, ("x",))]
        assert [size for size in sizes if isinstance(size, int)] == [64, 64]
        assert len(sizes) == 4

    def test_any_number_of_dimensions_is_handed_over_as_one(self):
        text = 'schema = "f(Tensor x) -> Tensor out"\nshapes = { out = "x" }\ndtypes = ["int8"]\n'
        _, asked = requests(text + "contiguous = true", ("x", "out"))[0]
        for one in asked["arguments"]:
            assert (one["kind"], one["shape"]) == ("flat", [{"bits": 64, "divisor": 1}])
        with pytest.raises(BuildError, match="the number of dimensions of `x` is unknown"):
            requests(text, ("x", "out"))

    def test_integers_are_not_divisible(self):
        text = (
            'schema = "f(Tensor(a!) x, int n) -> ()"\nshapes = { x = ["N"] }\ndtypes = ["int8"]\n'
        )
        with pytest.raises(BuildError, match="`n` cannot be assumed to be divisible"):
            requests(text + 'divisible = ["n"]', ("x", "n"))

    def test_assumptions_about_what_is_not_there(self):
        text = 'schema = "f(Tensor(a!) x) -> ()"\nshapes = { x = ["N"] }\ndtypes = ["int8"]\n'
        issues = []
        op = op_of(text + 'divisible = ["K", "y.stride.0"]')
        assert bound_of(op, ("x",), issues) is None
        assert [issue.message for issue in issues] == [
            "`f` has no integer argument `K`",
            "`f` has no integer argument `y.stride.0`",
        ]


def image(version):
    return KernelImage(
        "cute", "sm_80", "object", "f", (), 0, 1, convention="tvm-ffi",
        compiler={"nvidia-cutlass-dsl": version},
    )  # fmt: skip


def test_objects_of_another_release_are_refused():
    cute().validate_image(image("4.8.1"), PINS)
    with pytest.raises(BuildError, match=r"made by nvidia-cutlass-dsl 4\.5\.3.*pins 4\.8\.1"):
        cute().validate_image(image("4.5.3"), PINS)


def test_a_release_without_the_runtime_that_objects_need(tmp_path):
    with pytest.raises(ToolchainError, match="no static runtime"):
        cute().linked(tmp_path, PINS, "cuda13")
