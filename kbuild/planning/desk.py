"""What the planning of one variant looks at."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.backends import Backend
from kbuild.frameworks import Framework
from kbuild.includes import Includes
from kbuild.matrix.selection import Choice
from kbuild.project import Project
from kbuild.sourcetree import SourceTree
from kbuild.version import Version


@dataclass(frozen=True)
class Desk:
    """What the planning of one variant looks at."""

    project: Project
    choice: Choice
    tree: SourceTree
    backend: Backend
    framework: Framework
    includes: Includes
    """Of that tree; all variants of a project share it."""
    ops_name: str
    archs: tuple[str, ...] = ()
    """Archs that the user asks for; all of each kernel's when empty."""
    compiler: Version | None = None
    """The device compiler's release, where it is another than the variant's."""

    @property
    def toolkit(self) -> Version | None:
        """The CUDA, ROCm or oneAPI release that compiles: the variant's, as a rule."""
        return self.compiler or self.choice.variant.backend_version

    @property
    def floor(self) -> Version | None:
        """The stable-ABI floor; None for the full ABI."""
        torch = self.project.file.torch
        return torch.stable_abi_for(self.backend.name) if torch else None
