"""The captures that are committed: of these sources, and plans of what they compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.__main__ import main

ROOT = Path(__file__).parents[2]
PROJECTS = ("examples/attention-triton", "tests/gpu/captured")


@pytest.mark.parametrize("folder", PROJECTS)
def test_captures_are_of_their_sources(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", str(ROOT / folder), "--check"]) == 0, capsys.readouterr().err


def test_the_example_has_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    variant = ("--variant", "*-cu130-x86_64-linux")
    assert main(["plan", str(ROOT / PROJECTS[0]), *variant]) == 0
    printed = capsys.readouterr().out
    for name in ("rms_norm_backward", "attention_backward", "attention_varlen_backward"):
        assert f"_{name}: " in printed


def test_the_example_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", str(ROOT / PROJECTS[0]), "--show", "--name", "rms_norm"]) == 0
    printed = capsys.readouterr().out
    assert "rms_norm(Tensor x, Tensor weight, float eps=1e-06) -> Tensor\n" in printed
    assert (
        "images/arch 60: 10 values of the constant `BLOCK` (6 images each), 3 combinations of "
        "`dtypes` (20 images each), 2 assumptions about alignment (30 images each)\n"
    ) in printed
    assert "launch      _rms_norm_forward[rows]\n" in printed
    assert "attention" not in printed.replace("attention_ops", "")
