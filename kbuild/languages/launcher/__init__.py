"""The launcher of a kernel: C++ that chooses, loads and launches images behind ops.

`launcher` makes two files from compiled ops: one source, and one file with all images that the
assembler puts into the extension. The source needs Torch's stable ABI and nothing else, or the C
functions of TVM-FFI: `hosts.py` says what differs.
"""

from kbuild.languages.launcher.files import launcher_files
from kbuild.languages.launcher.images import link_libraries_file
from kbuild.languages.launcher.launch_variants import CompiledLaunch, CompiledOp

__all__ = ["CompiledLaunch", "CompiledOp", "launcher_files", "link_libraries_file"]
