"""The compiler launcher of every build: `python -I -S launcher.py LANGUAGE COMPILER ARGUMENT...`.

CMake puts it before each compiler command (`CMAKE_<LANG>_COMPILER_LAUNCHER`). It looks the object
up in the cache, waits for memory, runs the compiler, logs what it took and stores the object.
Outside a run of kbuild, e.g. when ninja is started by hand, it becomes the compiler.
"""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> int:
    """Run one unit; returns its exit status."""
    language, *command = argv
    # With `-I`, Python does not search the folder of the script.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from kbuild.system.unit_settings import read_launcher_settings

    settings = read_launcher_settings(os.environ)
    if settings is None:
        os.execvp(command[0], command)  # noqa: S606 - this process becomes the compiler
    from kbuild.build.unit.job import UnitCompilation

    try:
        return UnitCompilation(settings, language, command).run()
    except OSError as error:  # no space, no permission: what runs the build puts it into words
        sys.stderr.write(f"kbuild: {error}\n")
        return 1


if __name__ == "__main__":
    import _signal  # type: ignore[import-not-found]  # signal itself loads enum

    # Ctrl-C ends the launcher as it ends a compiler, without a traceback.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
