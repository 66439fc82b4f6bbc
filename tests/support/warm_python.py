"""An interpreter that has imported Torch already: each program runs in a fork of one process.

`warm_python.py SOCKET` serves; the programs of `warm_python()` start as an interpreter does, hand
over their arguments, environment, folder and streams, and end as the forked process ended, by the
same signal if it was one. What a fork cannot show is that importing Torch itself works: a few tests
keep the real interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMPORTED = ("torch", "kernels", "kernels.variants")
CLIENT = """\
import json, os, resource, signal, socket, sys
inherited = [int(name) for name in os.listdir("/proc/self/fd")]
inherited = [number for number in inherited if os.path.exists(f"/proc/self/fd/{number}")]
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    task = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd(), "fds": inherited}
    socket.send_fds(server, [json.dumps(task).encode() + b"\\n"], inherited)
    ended = int(server.makefile().readline())
if ended >= 0:
    os._exit(ended)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(-ended, signal.SIG_DFL) if -ended not in (signal.SIGKILL, signal.SIGSTOP) else None
os.kill(os.getpid(), -ended)
"""


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """A program that takes what `python` takes, as long as the context lasts.

    What runs is a fork of a process that is in no sandbox.
    """
    address, client, program = folder / "socket", folder / "client.py", folder / "python"
    client.write_text(CLIENT)
    start = shlex.join((sys.executable, "-S", "-I", str(client), str(address)))
    program.write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    program.chmod(0o755)
    base = Path(sys.executable).parent  # a sandbox takes it for the environment of that interpreter
    (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
    argv = (sys.executable, __file__, str(address))
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=env) as server:  # noqa: TID251
        try:
            while not address.exists():
                assert server.poll() is None, "the warm interpreter ended"
                time.sleep(0.05)
            yield program
        finally:
            assert server.stdin is not None
            server.stdin.close()


def rehearse() -> None:
    """Call one op with real and with fake tensors: half of what Torch imports, it imports then."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    library = torch.library.Library("kbuild_rehearsal", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", torch.relu, "CPU")
    torch.library.register_fake("kbuild_rehearsal::f", torch.empty_like, lib=library)
    with FakeTensorMode() as mode:
        torch.ops.kbuild_rehearsal.f(mode.from_tensor(torch.empty(2)))


def serve(address: str) -> None:
    """Fork for each connection, until whoever started this closes its end of stdin."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            __import__(name)
    with contextlib.suppress(ImportError):
        rehearse()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            ready, _, _ = select.select([listener, 0], [], [])
            if 0 in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                attend(connection)
            connection.close()


def attend(connection: socket.socket) -> None:
    """Run one program in a fork, and say how it ended."""
    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 16)
    child = os.fork()
    if child == 0:
        connection.close()
        become(json.loads(data), streams)
        return
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(task: dict[str, object], streams: list[int]) -> None:
    """Be the program that was asked for, to its end, what it registered with `atexit` included.

    Torch's modules are not torn down: in a fork that copies every page, and takes seconds.
    """
    numbers: list[int] = task["fds"]  # type: ignore[assignment]
    above = [fcntl.fcntl(stream, fcntl.F_DUPFD, 100) for stream in streams]
    for stream in streams:
        os.close(stream)
    for number, stream in zip(numbers, above, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(task["env"])  # type: ignore[call-overload]
    os.chdir(str(task["cwd"]))
    sys.argv = list(task["argv"])  # type: ignore[call-overload]
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - shown as an interpreter would
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    serve(sys.argv[1])
