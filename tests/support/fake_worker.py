"""A worker without a compiler: it does what the source and the unit's options say."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from itertools import repeat
from pathlib import Path

from kbuild.dsl.worker.protocol import RefusalError

PARAMETER = {"kind": "pointer", "type": "*fp16", "name": "x"}


class Compiler:
    """See `kbuild.dsl.worker.protocol.WorkerCompiler`."""

    def ask_with(self, ask):
        self._ask = ask

    def describe(self, request):
        source = self._source(request)
        self._log(source, "describe")
        if source.get("refuse"):
            raise RefusalError("no", file="k.py", line=3, hint="mend it")
        print("an author's word")
        return {"functions": source["functions"]}

    def compile(self, request):
        source, options = self._source(request), request["options"]
        asked = f"{request.get('dtype', '')}-{options.get('num_stages', '')}"
        self._log(source, f"start {options.get('number')} {os.getpid()}")
        first = self._is_first(source, options)
        if options.get("do") and (first or options.get("always")):
            getattr(self, f"_{options['do']}")()
        if options.get("kernel") and not self._ask(options["kernel"]):
            self._log(source, f"known {options.get('number')} {os.getpid()}")
            Path(request["output"]).unlink(missing_ok=True)
        else:
            self._make(request, source, options)
        self._log(source, f"end {options.get('number')} {os.getpid()}")
        return {
            "kind": "cubin",
            "entry": request["function"],
            "parameters": [PARAMETER],
            "shared": options.get("shared", 0) + source.get("shared", {}).get(asked, 0),
            "threads": 128,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "divisible": [],
            "ones": [],
            "constants": {"number": options.get("number")} if options.get("kernel") else {},
            "types": {"x": "*fp16"},
        }

    def _make(self, request, source, options):
        if options.get("kernel"):
            self._log(source, f"make {options.get('number')} {os.getpid()}")
        if options.get("fail") and self._is_first(source, {"number": "failed"}):
            getattr(self, f"_{options['fail']}")()
        time.sleep(options.get("seconds", 0.0))
        Path(request["output"]).write_bytes(b"" if options.get("empty") else b"code" * 8)

    def _source(self, request):
        return json.loads(Path(request["root"], request["sources"][0]).read_text())

    def _log(self, source, text):
        with Path(source["log"], "log").open("a") as file:
            file.write(f"{time.monotonic():.4f} {text}\n")

    def _is_first(self, source, options):
        mark = Path(source["log"], f"did-{options.get('number')}")
        is_first = not mark.exists()
        mark.touch()
        return is_first

    def _crash(self):
        os.write(2, b"LLVM ERROR: it broke\n")
        os.kill(os.getpid(), signal.SIGSEGV)

    def _raise(self):
        raise LookupError("an oversight")

    def _exit(self):
        os._exit(3)

    def _hang(self):
        time.sleep(600)

    def _spin(self):
        """Never return to the interpreter."""
        deque(repeat(0), maxlen=0)

    def _garbage(self):
        for descriptor in range(3, 16):
            try:
                os.write(descriptor, b"what is this\n")
            except OSError:
                continue

    def _other(self):
        for descriptor in range(3, 16):
            try:
                os.write(descriptor, b'{"id": 999, "answer": {}}\n')
            except OSError:
                continue

    def _print(self):
        print('{"id": 1, "answer": {}}')
        os.write(1, b"hello\n")

    def _refuse(self):
        error = RefusalError("cannot compile this", file="k.py", line=7, hint="mend it")
        error.excerpt = ("y = x", "    ^")
        raise error
