"""Runs a program of `kbuild/checks/probes` in another interpreter, sandboxed where possible.

Answers come through a pipe, each line with a secret: what a kernel prints is shown and never
believed. The sandbox is bubblewrap's.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kbuild.system.emulator import Emulator
from kbuild.system.errors import DamagedFileError
from kbuild.system.processes import ProcessResult, Runner
from kbuild.system.temporary import temporary_base, temporary_folder
from kbuild.system.untrusted import parse_json

BUBBLEWRAP = "bwrap"
_SANDBOX_DEVICES = ("nvidia*", "kfd", "dri", "accel")
_HIDDEN_FOLDERS = ("/home", "/root", "/tmp", "/var/tmp", "/run")  # noqa: S108 - hidden, not used
_DRIVERS = ("/run/opengl-driver", "/run/opengl-driver-32", "/run/current-system", "/run/nvidia")
"""Folders of drivers on NixOS and in containers."""
_SYSTEM_FOLDERS = frozenset(
    {"usr", "bin", "sbin", "lib", "lib64", "etc", "nix", "proc", "sys", "dev"}
)
"""Folders of `/` that hold what programs need: a home in one of them is not hidden."""
_OF_PREFIX = ("bin", "lib", "lib64", "pyvenv.cfg")

_PASSED_PATTERN = re.compile(
    r"(?:LD|DYLD|TORCH|PYTORCH|ATEN|C10|KINETO|TRITON|TVM|CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|HIP|HSA|ROCM"
    r"|ROCR|GPU|AMD|MIOPEN|SYCL|ZE|ONEAPI|UR|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|MALLOC|LC)_\w*"
    r"|PATH|LANG|LANGUAGE|TZ|GLIBC_TUNABLES|CONDA_PREFIX|VIRTUAL_ENV|PYTHONPATH|PYTHONHOME"
    r"|PYTHONNOUSERSITE"
)
"""Variables that the loader, Python, frameworks and device runtimes read."""
_SECRET_PATTERN = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE|PROXY")
_FIXED_VARIABLES = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONSAFEPATH": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def passed_variables() -> dict[str, str]:
    """The variables that a probe gets, but for those that name its private folder.

    Relative entries of a search path would mean the private folder; they are left out.
    """
    chosen = {
        k: v
        for k, v in os.environ.items()
        if _PASSED_PATTERN.fullmatch(k) and not _SECRET_PATTERN.search(k)
    }
    for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"):
        if name in chosen:
            chosen[name] = os.pathsep.join(filter(os.path.isabs, chosen[name].split(os.pathsep)))
    return {**chosen, **_FIXED_VARIABLES, "PYTHONUSERBASE": _user_base()}


def probe_environment(private: Path) -> dict[str, str]:
    """The whole environment of a probe whose home is the folder."""
    folder = str(private)
    return {**passed_variables(), **dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP"), folder)}


def _user_base() -> str:
    """The folder of the user's own packages, which belong to the interpreter; the home does not."""
    return os.environ.get("PYTHONUSERBASE") or str(Path.home() / ".local")


def bubblewrap_program() -> Path | None:
    """Bubblewrap; None when it is not installed, or not wanted."""
    is_wanted = sys.platform == "linux" and os.environ.get("KBUILD_SANDBOX") != "off"
    program = shutil.which(BUBBLEWRAP) if is_wanted else None
    return Path(program) if program else None


def sandbox_command(
    bwrap: Path, python: Path, private: Path, needed: Iterable[Path]
) -> tuple[str, ...]:
    """The command in front of a probe's own."""
    readable = (*needed, *_of_interpreter(python), *_paths_in_variables(passed_variables()))
    # Folders in whose place there is an empty one; real paths, none below another.
    homes = (str(Path.home()), _account_home(), temporary_base())
    folders = sorted(
        {os.path.realpath(path) for path in (*_HIDDEN_FOLDERS, *homes) if Path(path).is_dir()}
    )
    kept: list[str] = []
    for path in folders:
        if (
            path != os.sep
            and Path(path).parts[1] not in _SYSTEM_FOLDERS
            and not _is_below(Path(path), kept)
        ):
            kept.append(path)
    hidden = tuple(kept)
    bound = sorted({str(path) for path in readable if _is_below(path, hidden)})
    devices = [str(p) for pattern in _SANDBOX_DEVICES for p in sorted(Path("/dev").glob(pattern))]
    return (
        str(bwrap),
        # Without a new session, a kernel could type commands into the user's terminal.
        *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(part for device in devices for part in ("--dev-bind-try", device, device)),
        *(part for folder in hidden for part in ("--tmpfs", folder)),
        *(part for path in (*_DRIVERS, *bound) for part in ("--ro-bind-try", path, path)),
        # Last: the private folder may lie in a folder that is hidden above.
        *("--tmpfs", str(private), "--chdir", str(private), "--"),
    )


def _account_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return str(Path.home())


def _is_below(path: Path, folders: Iterable[str]) -> bool:
    """True if a path, or its target, lies below one of the folders and is none of them."""
    named, real = str(path), os.path.realpath(path)
    inside = any(way.startswith(f"{folder}{os.sep}") for folder in folders for way in (named, real))
    return inside and not any(
        f"{folder}{os.sep}".startswith(f"{real}{os.sep}") for folder in folders
    )


def _paths_in_variables(variables: Mapping[str, str]) -> Iterator[Path]:
    """The paths in variables that a probe gets; of the user's packages, only their part."""
    for value in (value for name, value in variables.items() if name != "PYTHONUSERBASE"):
        yield from (path for path in map(Path, value.split(os.pathsep)) if path.is_absolute())


@cache
def _of_interpreter(python: Path) -> tuple[Path, ...]:
    """Programs, libraries and packages of an interpreter, and targets of links in its packages."""
    paths: list[Path] = []
    prefixes: list[Path] = [Path(_user_base())]
    for step in _link_steps(Path(os.path.normpath(Path.cwd() / python))):
        paths.append(step.parent)
        prefixes.append(step.parent.parent)
        prefixes += _base_prefixes(step)
    for prefix in dict.fromkeys(prefixes):
        paths += [prefix / name for name in _OF_PREFIX]
        for packages in prefix.glob("lib*/python3*/*-packages"):
            paths += _linked_packages(packages)
    paths.append(Path.home() / ".cache" / "uv" / "archive-v0")  # uv can link packages to it
    return tuple(path for path in dict.fromkeys(paths) if path.exists())


def _link_steps(python: Path) -> Iterator[Path]:
    """The program, and what its links lead to, step by step."""
    for _ in range(20):
        yield python
        if not python.is_symlink():
            break
        python = Path(os.path.normpath(python.parent / python.readlink()))
    yield python.resolve()


def _base_prefixes(program: Path) -> Iterator[Path]:
    """The prefix that a virtual environment was made from."""
    for folder in program.parents[:2]:
        try:
            text = (folder / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition("=")
            base = Path(value.strip())
            if name.strip() == "home" and base.is_absolute():
                yield base.parent


def _linked_packages(packages: Path) -> Iterator[Path]:
    """The folders that `.pth` files and editable installs lead to."""
    for file in packages.glob("*.pth"):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        yield from (path for line in lines if (path := Path(line.strip())).is_absolute())
    for file in packages.glob("*.dist-info/direct_url.json"):
        try:
            origin = json.loads(file.read_bytes())
            if origin["dir_info"]["editable"] is True and origin["url"].startswith("file://"):
                yield Path(unquote(origin["url"].removeprefix("file://")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


_SHOWN_LINES = 6
_WATCHDOG = "Timeout ("
"""The start of faulthandler's report on a process that it ends."""
_RESERVED_KEYS = ("state", "reason", "files")
_START_PROGRAM = "start.py"
_TIMEOUT_S = 400
"""Seconds for which a probe may print nothing: it gives up by itself before that."""
_GRACE_S = 1.0
"""Seconds to read what a process printed before it ended."""
_MAX_ANSWER_BYTES = 64 << 20
"""Bytes that an answer may have; a probe's are thousands."""
PROBES_PACKAGE = "kbuild.checks.probes"


@dataclass(frozen=True)
class ProbeAnswer:
    """The last answer of a probe, and how its process ended."""

    state: str
    """The probe's word; without one `hung` or `died`, as the process was ended or ended; `forged`
    when something else than the probe spoke in its place."""
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the probe says."""
    doing: str = ""
    """The step during which the process ended."""
    returncode: int = 0
    """The exit status; a negative number is the signal that ended the process."""
    files: tuple[str, ...] = ()
    """Whatever decided it beside the arguments; empty when another answer may come any time."""
    sandboxed: bool = False
    """True when it was started in a sandbox just now."""


def run_probe(
    runner: Runner,
    python: Path,
    probe: str,
    *arguments: str | Path,
    patience_s: float = _TIMEOUT_S,
    emulator: Emulator | None = None,
) -> ProbeAnswer:
    """Run `probes/<probe>.py` in a fresh process, in an empty folder, without writing bytecode.

    Its temporary files are in that folder too: importing Torch leaves some. Paths among the
    arguments are what is asked about; they are made absolute.
    """
    with as_file(files(PROBES_PACKAGE)) as programs, temporary_folder("probe") as empty:
        private = empty.resolve()
        own = [path.resolve() for path in arguments if isinstance(path, Path)]
        texts = (str(a.resolve()) if isinstance(a, Path) else a for a in arguments)
        call = _ProbeCall(
            runner, programs / _START_PROGRAM, private, (str(patience_s), probe, *texts)
        )
        interpreter = emulator.interpreter if emulator else (str(python),)
        bwrap = bubblewrap_program()
        process_output = None
        if bwrap is not None and bwrap not in _BROKEN_SANDBOXES:
            needed = (programs.resolve(), *own, *(emulator.paths if emulator else ()))
            sandbox = sandbox_command(bwrap, python, private, needed)
            process_output = call.perform((*sandbox, *interpreter))
            if not process_output.started:  # nothing of what is asked about has run
                output = process_output.done.output
                # bubblewrap itself failed, not the interpreter: the next probes need not try it.
                if output.startswith(f"{BUBBLEWRAP}: ") and "execvp" not in output:
                    _BROKEN_SANDBOXES.add(bwrap)
                process_output = None
        sandboxed = process_output is not None
        process_output = process_output or call.perform(interpreter)
        answer = replace(_answer_of(process_output), sandboxed=sandboxed)
        outside = (str(path) for path in (*own, programs.resolve(), programs, private))
        # The paths that are neither one of these nor below one.
        within = tuple(f"{path}{os.sep}" for path in outside)
        paths_outside = (path for path in answer.files if not f"{path}{os.sep}".startswith(within))
        return replace(answer, files=tuple(paths_outside))


def is_sandboxed() -> bool:
    """True when probes run in a sandbox, as far as that is known."""
    bwrap = bubblewrap_program()
    return bwrap is not None and bwrap not in _BROKEN_SANDBOXES


_BROKEN_SANDBOXES: set[Path] = set()
"""Programs that could not make a sandbox: not every system allows it."""


@dataclass(frozen=True)
class _ProbeOutput:
    """The results of one process."""

    done: ProcessResult
    secret: str
    lines: Sequence[bytes]
    """The lines from the pipe, see `probes/start.py`."""

    @property
    def own(self) -> dict[str, Any]:
        """The starter's own message."""
        document: dict[str, Any] = {}
        for line in self.lines:
            if line.startswith(b"="):
                document |= _parse_line(line[1:])
        return document

    @property
    def started(self) -> bool:
        """False when the starter did not even begin."""
        return "started" in self.own

    def answers(self) -> list[dict[str, Any]] | None:
        """The probe's answers; None when another process has written in its place."""
        key = self.secret.encode() + b" "
        lines = [line[1:] for line in self.lines if line.startswith(b">")]
        if not all(line.startswith(key) for line in lines):
            return None
        return [_parse_line(line.removeprefix(key)) for line in lines]


@dataclass(frozen=True)
class _ProbeCall:
    """One question."""

    runner: Runner
    starter: Path
    private: Path
    arguments: tuple[str, ...]

    def perform(self, interpreter: tuple[str, ...]) -> _ProbeOutput:
        """Start the process, with the words of the interpreter first; listen until it ends."""
        secret, data = secrets.token_hex(32), bytearray()
        source, sink = os.pipe()
        listener = threading.Thread(target=_read_pipe, args=(source, data), daemon=True)
        listener.start()
        try:
            argv = (*interpreter, str(self.starter), str(sink), *self.arguments)
            done = self.runner.run(
                argv,
                cwd=self.private,
                env=probe_environment(self.private),
                # Arguments and environment would show the secret in `/proc`.
                stdin=f"{secret}\n",
                inherit=(sink,),
            )
        finally:
            # The reader sees the end of the pipe only when this process has closed its own copy.
            os.close(sink)
        listener.join(_GRACE_S)  # what outlives it may hold the other end
        whole, _, _ = bytes(data).rpartition(b"\n")
        return _ProbeOutput(done, secret, whole.split(b"\n"))


def _read_pipe(source: int, data: bytearray) -> None:
    """Read to the end, or to what the starter says last."""
    with os.fdopen(source, "rb", buffering=0) as file:
        # A hostile kernel could write without end.
        while len(data) < _MAX_ANSWER_BYTES and (block := file.read(1 << 16)):
            data += block


def _answer_of(process_output: _ProbeOutput) -> ProbeAnswer:
    done, own = process_output.done, process_output.own
    returncode = int(own.get("ended", done.returncode))
    documents = process_output.answers()
    if documents is None:
        reason = "something other than kbuild's probe wrote to the pipe for its answer"
        return ProbeAnswer(
            "forged", f"{reason}\n{_last_output_lines(done)}".rstrip(), returncode=returncode
        )
    doing = [str(document["doing"]) for document in documents if "doing" in document]
    answers = [document for document in documents if "state" in document]
    if answers:
        facts = {name: value for name, value in answers[-1].items() if name not in _RESERVED_KEYS}
        answer = ProbeAnswer(str(answers[-1]["state"]), str(answers[-1].get("reason", "")), facts)
        decided = tuple(str(path) for path in answers[-1].get("files", ()))
        answer = replace(answer, files=decided)
    else:
        is_late = any(line.startswith(_WATCHDOG) for line in done.output.splitlines())
        reason = f"the process ended with {returncode}\n{_last_output_lines(done)}".rstrip()
        answer = ProbeAnswer("hung" if "hung" in own or is_late else "died", reason)
    return replace(answer, doing=doing[-1] if doing else "", returncode=returncode)


def _last_output_lines(done: ProcessResult) -> str:
    """The end of what it printed."""
    return "\n".join(done.output.strip().splitlines()[-_SHOWN_LINES:])


def _parse_line(line: bytes) -> dict[str, Any]:
    """The object that a line is; empty for any other line."""
    try:
        return parse_json(line, "the answer", "an answer", strict=False)
    except DamagedFileError:
        return {}
