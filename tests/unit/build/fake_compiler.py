"""A compiler for tests: fast, and as hungry or as unlucky as its source says.

Lines of the source: `#include "x"` is looked up in the -I folders; `//! sleep S`, `//! allocate MIB`,
`//! say TEXT`, `//! exit CODE`, `//! die-once FILE` (killed unless FILE exists) are done. The object
holds everything that was read, and `__FILE__` after the prefix maps. Each start is a line in
$FAKE_STARTS.
"""

import os
import sys
import time


def main():
    words = sys.argv[1:]
    folders, maps, target, source, depfile = [], [], "", "", ""
    for word, following in zip(words, [*words[1:], ""]):
        if word.startswith(("-I", "-isystem")):
            folders.append(word.removeprefix("-isystem").removeprefix("-I"))
        elif word.startswith("-ffile-prefix-map="):
            maps.append(word.partition("=")[2].rpartition("=")[::2])
        target = following if word == "-o" else target
        source = following if word == "-c" else source
        depfile = following if word == "-MF" else depfile
    with open(os.environ["FAKE_STARTS"], "a") as starts:
        starts.write(f"{source} {time.time()}\n")
    name = source
    for place, mapped in maps:
        name = name.replace(place, mapped)
    read, text = [source], open(source).read()
    output = f"object of {name}\n{text}"
    for line in text.splitlines():
        verb, _, value = line.removeprefix("//! ").partition(" ")
        if line.startswith("#include"):
            wanted = line.split('"')[1]
            header = next(p for p in (f"{f}/{wanted}" for f in folders) if os.path.exists(p))
            read.append(header)
            output += open(header).read()
        elif verb == "sleep":
            time.sleep(float(value))
        elif verb == "allocate":
            hungry = bytearray(int(value) << 20)
            hungry[::4096] = b"x" * len(hungry[::4096])
            time.sleep(0.4)
        elif verb == "say":
            print(value.replace("{source}", source), file=sys.stderr)
        elif verb == "exit":
            return int(value)
        elif verb == "die-once" and not os.path.exists(value):
            open(value, "w").close()
            os.kill(os.getpid(), 9)
    with open(target, "w") as file:
        file.write(output)
    if depfile:
        with open(depfile, "w") as file:
            file.write(f"{target}: " + " \\\n ".join(p.replace(" ", "\\ ") for p in read) + "\n")
    return 0


sys.exit(main())
