"""The toolchain `debian-nvcc`."""

from __future__ import annotations

from pathlib import Path

from kbuild.plugins.debian.debian_nvcc.toolchain import DebianNvccToolchains, DebianNvccToolkits
from kbuild.system.store import open_store
from kbuild.toolchains.from_wheels import WheelToolchains
from kbuild.toolchains.host import HostToolchains
from kbuild.toolchains.wheels.installer import WheelInstaller


class DebianNvcc:
    """See `kbuild.toolchains.plugins.ToolchainPlugin`."""

    def __call__(self, host: HostToolchains) -> DebianNvccToolchains:
        """The source for a command line."""
        cache, downloads = host.cache.folder, host.downloads
        installer = WheelInstaller(host.runner, open_store(cache), downloads=downloads)
        toolkits, python = self.cuda_toolkits(installer, cache), host.python
        wheels = WheelToolchains(
            host.runner, cache, python, downloads, others=(toolkits,), torch_wheel=host.torch_wheel
        )
        return DebianNvccToolchains(wheels, toolkits)

    def cuda_toolkits(self, installer: WheelInstaller, cache: Path) -> DebianNvccToolkits:
        """Debian's nvcc for CUDA 12, in kbuild's store."""
        return DebianNvccToolkits(installer, cache)


PLUGIN = DebianNvcc()
