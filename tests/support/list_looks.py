"""Run a command of kbuild, and list what it asked the file system about.

python list_looks.py FILE ARGUMENTS...

`FILE` gets the absolute paths as JSON. Modules that Python imports are not among them.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

ASKING = ("stat", "lstat", "scandir", "listdir", "open", "access", "readlink")


def listen(module: Any, name: str, seen: set[str]) -> None:
    """Have a function note its first argument."""
    ask = getattr(module, name)

    def asked(*args: Any, **settings: Any) -> Any:
        if args and isinstance(args[0], (str, bytes, os.PathLike)):
            seen.add(os.path.abspath(os.fsdecode(args[0])))  # noqa: PTH100 - without links
        return ask(*args, **settings)

    setattr(module, name, asked)


def main() -> int:
    """The command's exit code."""
    import kbuild.__main__ as program

    seen: set[str] = set()
    for name in ASKING:
        listen(os, name, seen)
    listen(io, "open", seen)
    listen(builtins, "open", seen)
    code = program.main(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(sorted(seen)))
    return code


if __name__ == "__main__":
    sys.exit(main())
