"""cuTile as a language: pins, archs, and what a unit asks of the worker."""

from __future__ import annotations

import pytest

from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.expand import expand
from kbuild.ops.language import LANGUAGES
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from kbuild.system.errors import BuildError
from tests.support.sections import op_of

PINS = ("cuda-tile==1.7.0",)
SECTION = """
[kernel.k]
backend = "cuda"
language = "cutile"
toolchain = "cuda-tile==1.7.0"
src = ["k.py"]

[[kernel.k.op]]
"""
HEAD = f"""{SECTION}
function = "f"
grid = [1]
"""
CUTILE = LANGUAGES.get("cutile")
OLD = "images of cuTile need a driver for CUDA 13 (580)"


def requests(text, names, target="sm_90a"):
    """The request of each unit, the aligned one first."""
    op = op_of((SECTION if "launch =" in text else HEAD) + text)
    parameters = [KernelParameter(name.rstrip("!"), name.endswith("!")) for name in names]
    issues: list[object] = []
    bound = bind(op, op.launches[0], {"f": parameters}, IssueCollector((), issues))
    assert bound is not None, issues
    units = expand(op, [ImageTarget.parse(target)])
    return [CUTILE.request(unit, bound) for unit in units]


def arrays(text, names):
    """The arrays of the aligned and of the general unit, by name."""
    return [
        {argument["name"]: argument for argument in request["arguments"]}
        for request in requests(text, names)
    ]


def resolved(*archs, toolkit="13.0", backend="cuda"):
    found = CUTILE.targets(backend, archs or None, toolkit, PINS)
    return [str(target) for target in found.targets], list(found.notes)


def test_pins():
    assert CUTILE.unsupported_reason(PINS) is None
    assert "pins no exact release" in CUTILE.unsupported_reason(("cuda-tile",))
    assert "kbuild supports 1.7 and later" in CUTILE.unsupported_reason(("cuda-tile==1.4.0",))
    own = CUTILE.requirements((*PINS, "typing-extensions==4.15.0"))
    assert own[0] == PINS[0]
    assert [pin for pin in own if pin.startswith("typing")] == ["typing-extensions==4.15.0"]


@pytest.mark.parametrize(
    ("archs", "toolkit", "targets", "notes"),
    [
        ((), "13.0", ["sm_80", "sm_90a", "sm_100a", "sm_120a"], []),
        (("8.9", "9.0", "12.1a"), "13.0", ["sm_89", "sm_90a", "sm_121a"], []),
        (("7.5", "8.0"), "13.0", ["sm_80"], ["7.5: cuTile compiles for 8.0 and later; left out"]),
        (("9.0",), "12.8", [], [f"{OLD}; left out for 12.8"]),
    ],
)  # fmt: skip
def test_targets(archs, toolkit, targets, notes):
    assert resolved(*archs, toolkit=toolkit) == (targets, notes)


def test_other_backends():
    assert resolved(backend="rocm")[1] == ["cuTile does not compile for rocm"]


def test_compact_rows():
    """Their strides follow from the sizes: what these are divisible by, or are."""
    text = """
schema = "k(Tensor x, Tensor y) -> Tensor out"
shapes = { x = ["M", "K"], y = ["M", 48], out = ["M", "K"] }
dtypes = ["bfloat16"]
contiguous = true
divisible = ["K"]
"""
    aligned, general = arrays(text, ("x", "y", "out"))
    assert aligned["x"] == {
        "name": "x", "kind": "tensor", "dtype": "bfloat16", "align": 16, "bits": 32, "flat": False,
        "contiguous": True, "shape": [(None, 1), (None, 16)], "strides": [(None, 16), (1, 1)],
        "aliases": [],
    }  # fmt: skip
    assert (general["x"]["align"], general["x"]["shape"]) == (0, [(None, 1), (None, 1)])
    assert general["x"]["strides"] == [(None, 1), (1, 1)]
    assert general["y"]["strides"] == [(48, 1), (1, 1)]
    assert general["y"]["shape"] == [(None, 1), (48, 16)]


def test_strides_of_the_call():
    text = """
schema = "k(Tensor x, int n, float a) -> Tensor out"
shapes = { x = ["M", "K"], out = ["M", "K"] }
dtypes = ["float32"]
divisible = ["x.stride.0"]
ones = ["x.stride.1"]
int64 = ["x.stride.0", "n"]
"""
    aligned, general = arrays(text, ("x", "n", "a", "out"))
    assert aligned["x"]["strides"] == [(None, 16), (1, 1)]
    assert general["x"]["strides"] == [(None, 1), (None, 1)]
    assert not aligned["x"]["contiguous"]
    assert [aligned[name]["bits"] for name in ("x", "out", "n", "a")] == [64, 32, 64, 32]


def test_any_number_of_dimensions_is_one():
    text = """
schema = "k(Tensor x) -> Tensor out"
shapes = { x = ["..."], out = "x" }
dtypes = ["float32"]
contiguous = true
"""
    for found in arrays(text, ("x", "out")):
        assert (found["x"]["flat"], found["x"]["shape"]) == (True, [(None, 1)])
        assert found["out"]["strides"] == [(1, 1)]


def test_aliases():
    """Arguments of the caller may overlap, which counts if one is written; what is new may not."""
    text = """
schema = "k(Tensor x, Tensor y, Tensor(a!) z) -> Tensor out"
shapes = { x = ["N"], y = ["N"], z = ["N"], out = ["N"] }
dtypes = ["float32"]
contiguous = true
args = { again = "x" }
"""
    found, _ = arrays(text, ("x", "y", "z", "out", "again"))
    assert found["x"]["aliases"] == ["z", "again"]
    assert found["y"]["aliases"] == ["z"]
    assert found["z"]["aliases"] == ["x", "y", "again"]
    assert found["out"]["aliases"] == []


def test_views_and_copies():
    """A view without strides has compact rows; a view, and what may be no copy, share memory."""
    text = """
schema = "k(Tensor(a!) x) -> Tensor out"
shapes = { x = ["M", "N"], out = ["M", "N"], t = ["M", "N"] }
dtypes = ["float32"]
temporaries = ["t"]
views.flat = { of = "out", shape = ["M * N"] }
views.turned = { of = "x", shape = ["N", "M"], strides = ["stride(x, 1)", "stride(x, 0)"] }
launch = [
  { aten = "contiguous", arguments = ["x"], results = ["t"] },
  { function = "f", args = { copy = "t" }, grid = [1], divisible = ["turned.stride.1"] },
]
"""
    found, _ = arrays(text, ("x", "copy", "flat", "turned"))
    assert [name for name, array in found.items() if array["contiguous"]] == ["flat"]
    assert found["turned"]["strides"] == [(None, 1), (None, 16)]
    assert found["x"]["aliases"] == ["copy", "turned"]
    assert found["flat"]["aliases"] == []


def test_negative_strides_are_refused():
    text = """
schema = "k(Tensor x, Tensor y) -> Tensor out"
shapes = { x = ["M", "N"], y = ["M", "N"], out = ["M", "N"] }
dtypes = ["float32"]
contiguous = ["y"]
"""
    op = CUTILE.complete(op_of(HEAD + text), {}, IssueCollector((), []))
    assert [str(rule) for rule in op.require] == ["stride(x, 0) >= 0", "stride(x, 1) >= 0"]


def test_constants_and_options():
    text = """
schema = "k(Tensor x) -> Tensor out"
shapes = { x = ["N"], out = "x" }
dtypes = ["float32"]
configs = [{ B = 64, occupancy = 2 }, { B = 32 }]
"""
    found = requests(text, ("x", "out", "B!"))
    assert [(one["constants"], one["options"]) for one in found[::2]] == [
        ({"B": 64}, {"occupancy": 2}),
        ({"B": 32}, {}),
    ]


ONE = """
schema = "k(Tensor x{more}) -> Tensor out"
shapes = {{ x = ["{dim}"], out = "x" }}
dtypes = ["float32"]
"""
REFUSED = {
    "a tensor that may be None": (
        ONE.format(more=", Tensor? y", dim="N").replace("out =", 'y = "x", out ='),
        ("x", "y", "out"),
        "takes `y`, which may be None",
    ),
    "a tuple": (
        ONE.format(more="", dim="N") + 'args = { s = ["N", 1] }',
        ("x", "s", "out"),
        "takes no tuple as `s`",
    ),
    "an unknown rank": (
        ONE.format(more="", dim="..."),
        ("x", "out"),
        "the number of dimensions of `x` is unknown",
    ),
    "a size of 1": (
        ONE.format(more="", dim="N") + 'ones = ["N"]',
        ("x", "out"),
        "a size of `x` cannot be assumed to be 1",
    ),
    "a divisible number": (
        ONE.format(more=", int n", dim="N") + 'divisible = ["n"]',
        ("x", "n", "out"),
        "nothing can be assumed about the number `n`",
    ),
}


@pytest.mark.parametrize(("text", "names", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals(text, names, words):
    with pytest.raises(BuildError) as caught:
        requests(text, names)
    assert words in str(caught.value)
    assert caught.value.hint
