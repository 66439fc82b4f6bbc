"""Translate a folder of Torch's headers in place, as Torch's own build for ROCm does.

A script of its own: `hipify_headers.py <folder of Torch's hipify> <folder that holds torch/>`, run
by any interpreter from 3.9 on. Torch is not imported: its hipify needs nothing else of it.
"""

from __future__ import annotations

import importlib
import sys
import types


def main(hipify: str, folder: str) -> None:
    """Translate everything below `folder`."""
    for name, path in (("torch", ""), ("torch.utils", ""), ("torch.utils.hipify", hipify)):
        module = types.ModuleType(name)
        module.__path__ = [path] if path else []
        sys.modules[name] = module
    translator = importlib.import_module("torch.utils.hipify.hipify_python")
    translator.hipify(
        project_directory=folder,
        output_directory=folder,
        includes=[f"{folder}/*"],
        show_progress=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
