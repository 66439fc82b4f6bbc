"""The licence of the compiler, and whether the user has accepted it."""

from __future__ import annotations

from collections.abc import Mapping

VARIABLE = "KBUILD_ACCEPT_LICENSE"
"""Names of licences that the user accepts, separated by commas."""
NAME = "nvidia-cuda-eula"
TITLE = "NVIDIA's End User License Agreement for the CUDA Toolkit"
TEXT = "https://docs.nvidia.com/cuda/eula/"


def is_accepted(environ: Mapping[str, str]) -> bool:
    """True when the variable names the licence."""
    return NAME in {name.strip() for name in environ.get(VARIABLE, "").split(",")}


def asks() -> str:
    """What to do, for the sentence of a refusal."""
    return f"read {TITLE} ({TEXT}), and set {VARIABLE}={NAME} to accept it"
