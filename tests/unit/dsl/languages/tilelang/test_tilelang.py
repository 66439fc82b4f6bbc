"""TileLang as a language: pins, archs, environments, and what a unit asks of the worker."""

from __future__ import annotations

import pytest

from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.image import KernelImage
from kbuild.ops.language import LANGUAGES, KernelFunction
from kbuild.ops.model import TuneProposal
from kbuild.ops.unit import CPU_TARGET, ImageTarget
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from tests.support.sections import read

PINS, OLDER = ("tilelang==0.1.15",), ("tilelang==0.1.12",)
HEAD = """
[kernel.k]
backend = "cuda"
language = "tilelang"
toolchain = "tilelang==0.1.15"
src = ["k.py"]

[[kernel.k.op]]
"""
OP = """
schema = "f(Tensor x, Tensor y, float alpha) -> Tensor out"
shapes = { x = ["M", "N"], y = ["..."], out = ["M", "N"] }
dtypes = ["float16", "bfloat16"]
contiguous = true
constants = { dtype = { dtype = "x" }, width = { value = "N", choices = [64, 128] } }
configs = [{ block = 128 }]
"""
NAMES = ("x", "y", "alpha", "out", "scale?", "dtype!", "width!", "block!")


def tilelang():
    return LANGUAGES.get("tilelang")


def requests(text=OP, names=NAMES, target="sm_90a"):
    reading = read(HEAD + text)
    assert [i for i in reading.issues if i.severity == "error"] == []
    (op,) = reading.ops
    parameters = [
        KernelParameter(name.rstrip("!?"), name.endswith("!"), has_value=name.endswith("?"))
        for name in names
    ]
    issues = []
    bound = bind(op, op.launches[0], {"f": parameters}, IssueCollector((), issues))
    assert bound is not None, issues
    units = tilelang().expand(op, [ImageTarget.parse(target)])
    return [(unit, tilelang().request(unit, bound)) for unit in units]


class TestPins:
    def test_the_release_that_is_known(self):
        assert tilelang().unsupported_reason(PINS) is None
        assert "pins no exact release" in tilelang().unsupported_reason(("tilelang",))
        words = tilelang().unsupported_reason(("tilelang==0.1.14",))
        assert words.startswith("pins tilelang 0.1.14;")
        assert "tilelang==0.1.12 or tilelang==0.1.15" in words
        assert tilelang().unsupported_reason(OLDER) is None

    def test_the_environment_needs_no_torch(self):
        found = tilelang().environment((*PINS, "numpy == 2.4.5"), "cuda13")
        assert found[0] == PINS[0]
        assert [pin for pin in found if pin.startswith("numpy")] == ["numpy==2.4.5"]
        assert not any("torch" in pin for pin in found)
        assert all(pin.count("==") == 1 for pin in found)


class TestTargets:
    @pytest.mark.parametrize(
        ("archs", "targets"),
        [
            (None, ["sm_80", "sm_90a", "sm_100a", "sm_120a"]),
            (("8.9", "9.0", "9.0a"), ["sm_89", "sm_90a"]),
            (("10.0",), ["sm_100a"]),
            (("8.7", "10.3", "11.0", "12.1"), ["sm_87", "sm_103a", "sm_110a", "sm_121a"]),
        ],
    )
    def test_archs(self, archs, targets):
        assert [
            str(one) for one in tilelang().targets("cuda", archs, "13.2", PINS).targets
        ] == targets

    def test_what_is_left_out(self):
        found = tilelang().targets("cuda", ("7.0", "8.0+PTX"), "13.0", PINS)
        assert [str(one) for one in found.targets] == ["sm_80"]
        assert "7.0: tilelang is not known to compile for it" in found.notes[0]
        assert "8.0+PTX: objects of tilelang hold no PTX" in found.notes[1]

    def test_other_backends(self):
        assert tilelang().targets("cpu", None, None, PINS).targets == (CPU_TARGET,)
        for backend, toolkit, pins, words in (
            ("cpu", None, OLDER, "for the CPU cannot be compiled"),
            ("rocm", "7.0", OLDER, "is not known to compile for AMD's GPUs"),
            ("cuda", "12.6", PINS, "CUDA 13's nvcc"),
            ("xpu", "2026.0", PINS, "TileLang has no code for xpu"),
        ):
            found = tilelang().targets(backend, None, toolkit, pins)
            assert found.targets == ()
            assert words in found.notes[0]

    def test_gpus_of_amd(self):
        found = tilelang().targets("rocm", ("gfx942", "gfx1030", "gfx90a"), "7.1", PINS)
        assert [str(one) for one in found.targets] == ["gfx942", "gfx90a"]
        (note,) = found.notes
        assert note.startswith("gfx1030: tilelang 0.1.15 is not known to compile for it")
        usual = tilelang().targets("rocm", None, "7.1", PINS)
        assert [str(one) for one in usual.targets] == ["gfx90a", "gfx942", "gfx1100"]
        assert tilelang().programs(PINS, "rocm") == {"KBUILD_HIPCC": "hip"}
        assert tilelang().program(PINS, "rocm", usual.targets[0]) == "hip"


class TestSizes:
    """Of a function with `T.const("width")`, which is a dimension of both tensors."""

    CASES = """
[kernel.k.op.tune]
cases = [
    { M = 3, N = 64, alpha = 1.0, "..." = [5] },
    { M = 5, N = 128, alpha = 1.0, "..." = [5] },
    { M = 7, N = 64, alpha = 1.0, "..." = [5] },
]
"""

    @staticmethod
    def completed(text, dimensions=None, optional=()):
        reading = read(HEAD + text)
        assert [i for i in reading.issues if i.severity == "error"] == []
        names = ("x", "y", "alpha", "out", "dtype!", "width!", "block!")
        parameters = tuple(
            KernelParameter(n.rstrip("!"), n.endswith("!"), has_value=n.rstrip("!") in optional)
            for n in names
        )
        known = {"dimensions": dimensions or {"x": ["", "width"], "out": ["", "width"]}}
        function = KernelFunction("f", parameters, facts=known)
        return tilelang().complete(reading.ops[0], {"f": function}, IssueCollector(()))

    @staticmethod
    def without_width(text=OP):
        return text.replace(', width = { value = "N", choices = [64, 128] }', "")

    def test_values_are_those_that_are_tuned_for(self):
        op = self.completed(self.without_width() + self.CASES)
        (found,) = [one for one in op.launches[0].constants if one.name == "width"]
        assert (str(found.expression), found.choices) == ("N", (64, 128))

    def test_the_sections_own_go_before(self):
        op = self.completed(OP.replace("[64, 128]", "[32]") + self.CASES)
        (found,) = [one for one in op.launches[0].constants if one.name == "width"]
        assert found.choices == (32,)
        configs = self.without_width().replace("block = 128", "block = 128, width = 32")
        assert not _sized(self.completed(configs + self.CASES))

    def test_nothing_is_known_of_them(self):
        assert not _sized(self.completed(self.without_width()))
        dimensions = {"x": ["", ""], "y": ["width"]}
        assert not _sized(self.completed(self.without_width() + self.CASES, dimensions))
        assert not _sized(self.completed(self.without_width() + self.CASES, optional=("width",)))

    def test_another_launch_takes_any(self):
        other = OP.replace('constants = { dtype = { dtype = "x" }, width', "constants = { width")
        text = (
            other.split("constants")[0]
            + """
[[kernel.k.op.launch]]
function = "f"
when = "N == 64"
constants = { dtype = { dtype = "x" }, width = { value = "N", choices = [64] }, block = 128 }

[[kernel.k.op.launch]]
function = "g"
when = "N != 64"
constants = { dtype = { dtype = "x" }, block = 128 }
"""
        )
        op = self.completed(text)
        assert op.tune.proposals == (TuneProposal((("N", 64),)), TuneProposal())


def _sized(op):
    return [one for one in op.launches[0].constants if one.name == "width"]


class TestRequests:
    def test_a_number_with_a_default_may_be_left_out(self):
        _, asked = requests()[0]
        assert "scale" not in [one["name"] for one in asked["arguments"]]
        with pytest.raises(AssertionError, match="`f` has no value for `scale`"):
            requests(names=tuple(name.rstrip("?") for name in NAMES))

    @pytest.mark.parametrize("key", ["divisible", "ones", "int64"])
    def test_assumptions_say_nothing(self, key):
        text = OP.replace("float alpha", "int alpha") + f'{key} = ["alpha"]\n'
        with pytest.raises(BuildError, match=f"`{key}` has no effect in TileLang"):
            requests(text)

    def test_optional_tensors(self):
        text = OP.replace("Tensor y", "Tensor? y").replace('y = ["..."]', 'y = ["N"]')
        with pytest.raises(BuildError, match="takes `y`, which may be None"):
            requests(text)

    def test_images_of_another_release(self):
        image = KernelImage("tilelang", "cpu", "object", "f", (), 0, 1, convention="c",
                      compiler={"tilelang": "0.1.14"})  # fmt: skip
        with pytest.raises(BuildError, match=r"made by tilelang 0.1.14"):
            tilelang().validate_image(image, PINS)
