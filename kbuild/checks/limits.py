"""How much a library may ask of the machine that loads it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kbuild.checks.readers.policies import policy_of
from kbuild.matrix.archs import deployment_target
from kbuild.variant import Variant
from kbuild.version import Version

POLICY = "manylinux_2_28"
PYTHON = Version((3, 9))


@dataclass(frozen=True)
class Limits:
    """The ceilings that checks hold libraries against; None is "as the variant promises".

    Raises:
        ValueError: no such policy; says which one may be meant.
    """

    manylinux: str | None = None
    """A policy of auditwheel by name or alias: `manylinux_2_28`, `manylinux2014`."""
    macos: Version | None = None
    """The oldest macOS that must load the library."""
    python_abi: Version | None = None
    """The oldest CPython that must load the extension."""
    torch_stable_abi: Version | None = None
    """The oldest Torch that must load it; still None after `filled` when only one must."""
    max_size: int | None = None
    """Bytes of all files of a variant together; still None after `filled` for no limit."""

    def __post_init__(self) -> None:
        if self.manylinux is not None:
            object.__setattr__(self, "manylinux", policy_of(self.manylinux).name)

    def filled(self, variant: Variant | None) -> Limits:
        """With every limit that nobody chose as the variant's name promises it."""
        stable = variant is not None and variant.framework == "torch-stable-abi"
        promised = variant.framework_version if variant and stable else None
        backend = variant.backend if variant else "cpu"
        return replace(
            self,
            manylinux=self.manylinux or POLICY,
            macos=self.macos or Version.parse(deployment_target(backend)),
            python_abi=self.python_abi or PYTHON,
            torch_stable_abi=self.torch_stable_abi or promised,
        )
