"""Where the headers of a variant come from when only its types are checked.

Torch's, TVM-FFI's and the device's are pinned wheels in the store, fetched when a check needs them;
header dependencies come the same way as for a build.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild import rendering
from kbuild.backends.base import TypeCheck
from kbuild.frameworks import FRAMEWORKS
from kbuild.plan import Requirements, VariantPlan
from kbuild.runtime.files import FileSet
from kbuild.static.types import IncludeFolders
from kbuild.toolchains.dependency_headers.search import HeaderResolver
from kbuild.toolchains.facts import Facts
from kbuild.toolchains.wheels import frameworks
from kbuild.toolchains.wheels.frameworks import HEADERS_INCLUDE_FOLDER, torch_include_folders
from kbuild.toolchains.wheels.installer import WheelInstaller
from kbuild.version import Version

FoundFolders = dict[str, tuple[Path, ...]]


@dataclass(frozen=True)
class HeaderDir:
    """Gives the folders of any variant's headers; fetches what is not here."""

    project: Path
    scratch: Path
    """Folder for generated headers."""
    facts: Facts
    """The interpreter's."""
    installer: WheelInstaller
    sources: HeaderResolver

    def folders(self, plan: VariantPlan, check: TypeCheck) -> IncludeFolders:
        """Everything that the variant's units may include.

        Raises:
            ToolchainError: something is not pinned, or cannot be had.
        """
        framework = FRAMEWORKS.get(plan.framework)
        support = {
            f"{framework.package_root}/{name}": rendering.read(f"project/{name}")
            for name in framework.support_files
        }
        return IncludeFolders(
            project=self.project,
            generated=_written(self.scratch / plan.framework, support),
            stand_ins=_written(self.scratch / f"{plan.backend}-stand-ins", dict(check.stand_ins)),
            python=Path(self.facts["python"]["include_dir"] or "/nonexistent"),
            libraries=self._libraries(plan.requires),
            device=self._device(plan.requires, check),
        )

    def _libraries(self, requires: Requirements) -> FoundFolders:
        folders: FoundFolders = {}
        if requires.torch:
            entry = self.installer.torch(
                requires.torch, exact=requires.torch_exact, for_device=False
            )
            folders["torch"] = torch_include_folders(entry.root)
        if requires.tvm_ffi:
            root = self.installer.tvm_ffi(requires.tvm_ffi).root
            folders["tvm-ffi"] = (root / frameworks.TVM_FFI_INCLUDE_FOLDER,)
        if requires.libraries:
            compiler = Version.parse(requires.toolkit) if requires.toolkit else None
            headers = self.sources.resolve(requires.libraries, compiler)
            folders |= {source.name: tuple(source.include_dirs) for source in headers}
        return folders

    def _device(self, requires: Requirements, check: TypeCheck) -> FoundFolders:
        if requires.toolkit is None:
            return {}
        release = Version.parse(requires.toolkit).release
        return {
            name: (self.installer.headers(name, release).root / HEADERS_INCLUDE_FOLDER,)
            for name in check.headers
        }


def _written(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    FileSet(files).write(folder)
    return folder
