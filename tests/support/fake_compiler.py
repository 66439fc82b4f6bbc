"""A compiler for tests: fast, and as hungry or as unlucky as its source says.

Lines of the source: `#include "x"` is looked up in the -I folders; `//! sleep S`,
`//! allocate MIB`, `//! grow MIB` (little by little), `//! say TEXT`, `//! exit CODE`,
`//! die-once FILE` (killed unless FILE exists), `//! run COMMAND` (in the folder of the source) are
done. The object holds everything that was read, and the source's name after the prefix maps.
Each start is a line in $FAKE_STARTS.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

MAP = "-ffile-prefix-map="


def after(flag):
    """The word after `flag`, or nothing."""
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else ""


def found(name):
    """The header in the first folder that has it."""
    flags = ("-isystem", "-I")
    folders = [word[len(f) :] for word in sys.argv for f in flags if word.startswith(f)]
    return next(path for path in (Path(folder, name) for folder in folders) if path.exists())


def allocate(mib):
    """Touch every page, and stay for a while."""
    hungry = bytearray(int(mib) << 20)
    hungry[::4096] = b"x" * len(hungry[::4096])
    time.sleep(0.4)


def grow(mib):
    """Touch more and more pages, 20 steps of a tenth of a second of work each."""
    held = []
    for _ in range(20):
        held.append(bytearray(b"x") * ((int(mib) << 20) // 20))
        until = time.process_time() + 0.05
        while time.process_time() < until:
            pass
        time.sleep(0.05)


def source_folder():
    """Where the source lies."""
    return Path(after("-c")).parent


def die_once(mark):
    """As the OOM killer does it."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), 9)


VERBS = {
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "allocate": allocate,
    "grow": grow,
    "say": lambda text: print(text.replace("{source}", after("-c")), file=sys.stderr),
    "exit": lambda code: sys.exit(int(code)),
    "die-once": die_once,
    "run": lambda command: subprocess.run(  # noqa: S602, TID251
        command, shell=True, check=True, cwd=source_folder()
    ),
}


def main():
    """Compile."""
    source, depfile = Path(after("-c")), after("-MF")
    with Path(os.environ["FAKE_STARTS"]).open("a") as starts:
        starts.write(f"{source} {time.time()}\n")
    name = str(source)
    for word in sys.argv:
        if word.startswith(MAP):
            name = name.replace(*word[len(MAP) :].rsplit("=", 1))
    read = [source]
    for line in source.read_text().splitlines():
        verb, _, value = line.removeprefix("//! ").partition(" ")
        if line.startswith("#include"):
            read.append(found(line.split('"')[1]))
        elif line.startswith("//! "):
            VERBS[verb](value)
    texts = "".join(path.read_text() for path in read)
    Path(after("-o")).write_text(f"object of {name}\n{texts}")
    if depfile:
        listed = " \\\n ".join(str(path).replace(" ", "\\ ") for path in read)
        Path(depfile).write_text(f"{after('-o')}: {listed}\n")


main()
