"""Starts a probe in a process of its own, watches it, and passes on what it says.

Usage: `python start.py DESCRIPTOR PATIENCE PROBE ARG...`, with a secret line on stdin. PROBE is a
module beside this file with `main(say, *arguments)`; `say` takes a JSON object. What is said goes
through DESCRIPTOR, never through stdout: that is the kernel's to write to. Lines begin with `>` for
the probe's, each with the secret, and with `=` for this program's own: `{"started": true}` before
the probe begins, `{"ended": code}` after its end, which may also be that it said nothing for
PATIENCE seconds. The probe has no way to DESCRIPTOR and stdout, only to this program, which passes
on what it prints up to a limit, and it has limits of its own.
"""

from __future__ import annotations

import _thread
import importlib.util
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CPU_S = 3600
FILE_BYTES = 8 << 30
"""Far above what loading a kernel takes: compilers of device code write their caches."""
BLOCK = 1 << 16
LINE = 4 << 20
"""Bytes of a line that a probe says at most."""
PRINTED = 16 << 20
"""Bytes of what it prints that are passed on; the rest is thrown away."""


def neighbour(name: str) -> Any:
    """The module of that name beside this file; the folder itself is not searched for modules."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_kbuild_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def secret() -> bytes:
    """The line on stdin, which then has no more."""
    line = os.read(0, 256).strip()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return line


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data."""
    while data:
        data = data[os.write(descriptor, data) :]


def limit() -> None:
    """No core file, and an end to what processor time and files can be taken."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
    ):
        _, hard = resource.getrlimit(kind)
        ceiling = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (ceiling, ceiling))


def perform(name: str, arguments: list[str], descriptor: int, key: bytes) -> None:
    """Be the probe."""
    limit()

    def say(document: dict[str, Any]) -> None:
        write(descriptor, b"%s %s\n" % (key, json.dumps(document).encode()))

    neighbour(name).main(say, *arguments)


def watch(child: int, source: int, printed: int, target: int, patience: float) -> None:
    """Pass on what the probe says and prints, until it ends or says nothing for too long."""
    wake, waker = os.pipe()
    ended: list[int] = []

    def wait() -> None:
        _, status = os.waitpid(child, 0)
        ended.append(os.waitstatus_to_exitcode(status))
        os.write(waker, b".")

    _thread.start_new_thread(wait, ())
    rest, shown, hung = b"", 0, False
    until, open_ends = time.monotonic() + patience, {source, printed}
    while not ended:
        ready, _, _ = select.select([*open_ends, wake], [], [], max(0.0, until - time.monotonic()))
        if source in ready:
            until = time.monotonic() + patience
            block = os.read(source, BLOCK)
            rest = pass_on(rest + block, target)
            open_ends -= set() if block else {source}
        if printed in ready:
            block = os.read(printed, BLOCK)
            shown = show(block, shown)
            open_ends -= set() if block else {printed}
        if not ready:
            hung = True
            os.kill(child, signal.SIGKILL)
            os.read(wake, 1)
    for block in left(printed):
        shown = show(block, shown)
    for block in left(source):
        rest = pass_on(rest + block, target)
    outcome = {"ended": ended[0], **({"hung": patience} if hung else {})}
    write(target, b"=" + json.dumps(outcome).encode() + b"\n")


def left(source: int) -> Iterator[bytes]:
    """The bytes that can be read without waiting: a child may still have the other end open."""
    os.set_blocking(source, False)
    for _ in range(PRINTED // BLOCK):
        try:
            block = os.read(source, BLOCK)
        except BlockingIOError:
            return
        if not block:
            return
        yield block


def show(block: bytes, shown: int) -> int:
    """Print a part of what it prints, until that is enough; how much it was."""
    if shown < PRINTED:
        write(1, block)
    return shown + len(block)


def pass_on(data: bytes, target: int) -> bytes:
    """Pass on the lines that are whole; the rest.

    Raises:
        BrokenPipeError: nobody listens any more, or the rest is too long to be a probe's.
    """
    lines, newline, rest = data.rpartition(b"\n")
    if len(rest) > LINE:
        raise BrokenPipeError
    if newline:
        write(target, b"".join(b">" + line + b"\n" for line in lines.split(b"\n")))
    return rest


def main(descriptor: str, patience: str, name: str, *arguments: str) -> None:
    """Fork: the probe, and its watch."""
    own = str(Path(__file__).resolve().parent)
    # Python searches a script's folder first: its modules could hide others of the same names.
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != own]
    target, key = int(descriptor), secret()
    os.set_inheritable(target, False)
    write(target, b'={"started": true}\n')
    source, sink = os.pipe()
    printed, printer = os.pipe()
    child = os.fork()
    if child == 0:
        for unused in (target, source, printed):
            os.close(unused)
        os.dup2(printer, 1)
        os.dup2(printer, 2)
        os.close(printer)
        perform(name, list(arguments), sink, key)
        return
    os.close(sink)
    os.close(printer)

    def stop(number: int, _: Any) -> None:
        os.kill(child, signal.SIGKILL)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    try:
        watch(child, source, printed, target, float(patience))
    except BrokenPipeError:
        os.kill(child, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
