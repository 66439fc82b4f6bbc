"""What Triton compiles for, and what its worker is asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kbuild.dsl.languages.triton.jit_fallback import jit_source
from kbuild.ops.binding import bind
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.language import LANGUAGES, flavour_of
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import IssueCollector
from tests.support.sections import op_of, text_of

TRITON = LANGUAGES.get("triton")


def resolved(*archs: str, backend: str = "cuda", toolkit: str = "13.0", pin: str = "3.9.0"):
    found = TRITON.targets(backend, archs or None, toolkit, (f"triton=={pin}",))
    return [str(target) for target in found.targets], found.notes


def test_archs_of_one_chip():
    """From 9.0 on, Triton compiles for exactly one."""
    assert resolved("8.0+PTX", "8.6", "9.0", "9.0a", "10.3")[0] == [
        "sm_80", "compute_80", "sm_86", "sm_90a", "sm_103a",
    ]  # fmt: skip


def test_defaults_say_nothing():
    assert resolved() == (["sm_80", "compute_80", "sm_90a", "sm_100a", "sm_120a"], ())
    assert resolved(backend="rocm", toolkit="7.0") == (["gfx90a", "gfx942", "gfx1100"], ())


@pytest.mark.parametrize(
    ("arch", "targets", "note"),
    [
        ("9.0+PTX", ["sm_90a", "compute_80"], "Triton's PTX for 9.0 fits that chip only"),
        ("12.0f", ["sm_120a"], "Triton compiles for the chip, sm_120a, not for its family"),
        ("7.0", [], "Triton 3.9.0 does not compile for it here; left out"),
    ],
)
def test_notes(arch, targets, note):
    found, (said,) = resolved(arch)
    assert found == targets
    assert said.startswith(f"{arch}: {note}")


def test_what_a_release_cannot():
    assert resolved("10.3", pin="3.7.1", toolkit="12.8")[0] == []
    assert resolved("10.3", pin="3.7.1", toolkit="13.0")[0] == ["sm_103a"]
    assert resolved("11.0", pin="3.9.0", toolkit="12.9")[0] == []
    assert resolved("gfx942", pin="3.4.0", backend="rocm")[0] == []
    assert resolved("gfx942", pin="3.5.1", backend="rocm")[0] == ["gfx942"]
    assert resolved("12.0", pin="4.0.0")[0] == ["sm_120a"]  # as the newest that is known


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        (("triton==3.9.0",), None),
        (("triton==3.4",), None),
        (("triton==3.3.1",), "pins Triton 3.3.1; kbuild supports 3.4 and later"),
        (("triton>=3.9",), "pins no exact Triton"),
        (("torch==2.9.0",), "pins no exact Triton"),
    ],
)
def test_pins(pins, reason):
    said = TRITON.unsupported_reason(pins)
    assert said is None if reason is None else said.startswith(reason)


@pytest.mark.parametrize(
    ("version", "toolkit", "old", "new"),
    [
        ("3.9.0", "13.0", "ptxas", "ptxas-blackwell"),
        ("3.9.0", "12.8", "ptxas", "ptxas"),
        ("3.6.0", "12.8", "ptxas", "ptxas-blackwell"),
        ("3.6.0", "13.0", "ptxas", "nvcc"),
        ("3.5.1", "13.0", "nvcc", "nvcc"),
    ],
)
def test_assemblers(version, toolkit, old, new):
    kind = flavour_of("cuda", toolkit)
    pins = (f"triton=={version}",)
    assert TRITON.program(pins, kind, ImageTarget.parse("sm_90a")) == old
    assert TRITON.program(pins, kind, ImageTarget.parse("sm_100a")) == new
    assert TRITON.programs(pins, kind) == {
        "TRITON_PTXAS_PATH": old,
        "TRITON_PTXAS_BLACKWELL_PATH": new,
    }
    assert TRITON.programs(pins, "rocm") == {}
    assert TRITON.program(pins, "rocm", ImageTarget.parse("gfx942")) is None


def test_the_fallback_names_dtypes_as_triton_does():
    """A dtype of Torch that `triton.language` calls otherwise would be no attribute of it."""
    keys = {"dtypes": '["float16", "float8_e4m3fn"]', "constants": '{ T = { dtype = "x" } }'}
    op = op_of(text_of(**keys))
    (launch,) = op.launches
    parameters = [KernelParameter(name, name != "x") for name in ("x", "T", "BLOCK")]
    bound = bind(op, launch, {"k": parameters}, IssueCollector(launch.path))
    (line,) = (line for line in jit_source(op, [(launch, bound)]).splitlines() if " T = " in line)
    language = SimpleNamespace(float8e4nv="fp8", float16="fp16")
    importlib = SimpleNamespace(import_module=lambda _: language)
    for name, found in (("float8_e4m3fn", "fp8"), ("float16", "fp16")):
        x = SimpleNamespace(dtype=f"torch.{name}")
        space = {"x": x, "importlib": importlib, "_candidate": {}}
        exec(line.strip(), space)  # noqa: S102 - it is what kbuild generates
        assert space["T"] == found
