"""Every command with every kind of bad input: how each ends, and whether it says why.

    python benchmarks/bad_inputs.py [--save] [-v] [--verb NAME ...] [--input NAME ...]

Each cell is a process of its own, forked from one that has imported kbuild, in a fresh copy of a
small Python-only project that was built and hashed. A cell is right when the command ends within
30 seconds, not with 70 (a bug) or by a signal, prints no traceback, leaves the project's own files
as they were and nothing in TMPDIR. Exit code 1 when a cell is wrong.

Inputs that need the superuser (a full disk) are left out for others, and named. There is no
network.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from report import save

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kbuild.__main__ import entry  # noqa: E402
from kbuild.cli import COMMANDS  # noqa: E402

LIMIT = 30.0
BUG = 70
NAMELESS = 54321
"""A user id without an entry in the table of users."""
IS_ROOT = os.geteuid() == 0
BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[general.hub]
repo-id = "someone/demo"

[torch-noarch]
"""
PACKAGE = '"""Demo."""\n\n__all__ = ["one"]\n\none = 1\n'
VARIANT = "build/torch-cuda"
DEEP = 1000
_PLAIN = (
    *("build", "build-and-copy", "test", "clean", "check-config", "check", "plan"),
    *("list-variants", "abi-advice", "check-builds", "check-abi", "reproduce", "update-build"),
    "hash",
)
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_PLAIN, ("{project}",)),
    "init": ("{project}", "--no-git", "--name", "someone/demo"),
    "doctor": (),
    "tune": ("{project}", "--dry-run"),
    "devshell": ("--project", "{project}"),
    "testshell": ("--project", "{project}"),
    "aot": (
        "triton",
        "{project}/torch-ext/demo/__init__.py",
        "-n",
        "one",
        "-s",
        "*fp32",
        "-g",
        "1,1,1",
        "-o",
        "{project}/aot/one",
    ),
    "verify": ("{project}", "--offline", "--identity", "a@b.c", "--issuer", "https://d.e"),
    "create-pyproject": ("{project}", "{project}/out"),
    "clean-pyproject": ("{project}", "{project}/out"),
    "sign": ("{project}", "--identity-token", "e30.e30.e30"),
    "fill-card": ("{project}",),
    "upload": ("{project}", "--dry-run"),
    "build-and-upload": ("{project}", "--dry-run"),
    "toolchain": ("list",),
    "schema": (),
    "completions": ("bash",),
    "generate-docs": ("{project}/cli.md",),
}
WRONG = dict.fromkeys(("build", "build-and-copy", "build-and-upload", "reproduce"), ("-j", "0"))


@dataclass
class Site:
    """The surroundings of one cell, which an input spoils."""

    top: Path
    environ: dict[str, str]
    project: str = ""
    """How the command line names the project."""
    cwd: Path = Path()
    more: tuple[str, ...] = ()
    is_bound: bool = False
    """Permissions hold also for the superuser."""
    user: int | None = None
    file_size: int | None = None
    stdout: str = ""
    """Where data goes (default: a file that is read afterwards)."""
    is_cwd_gone: bool = False

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.top / "demo"

    @property
    def variant(self) -> Path:
        """Its built variant."""
        return self.root / VARIANT


@dataclass(frozen=True)
class Cell:
    """How one command ended with one input."""

    verb: str
    input: str
    code: int
    seconds: float
    fault: str
    """What is wrong with how it ended; empty when nothing is."""
    said: str
    """Its last words."""


Spoil = Callable[[Site, str], None]


def _build_file(text: str | bytes) -> Spoil:
    data = text.encode() if isinstance(text, str) else text
    return lambda site, _: _replaced(site.root / "build.toml").write_bytes(data) and None


def _metadata(data: bytes) -> Spoil:
    return lambda site, _: (site.variant / "metadata.json").write_bytes(data) and None


def _named(name: str) -> Spoil:
    def spoil(site: Site, _: str) -> None:
        site.root.rename(site.top / name)
        site.project = str(site.top / name)

    return spoil


def _given(text: str) -> Spoil:
    def spoil(site: Site, _: str) -> None:
        site.project = text.replace("{top}", str(site.top))

    return spoil


def _environ(**values: str) -> Spoil:
    return lambda site, _: site.environ.update(values)


def _replaced(path: Path) -> Path:
    """Nothing is there any more."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def _file_in_place(name: str) -> Spoil:
    return lambda site, _: _replaced(site.root / name).write_text("mine\n") and None


def _looped(name: str) -> Spoil:
    return lambda site, _: _replaced(site.root / name).symlink_to(Path(name).name)


def _a_file(site: Site, _: str) -> None:
    site.project = str(site.root / "build.toml")


def _read_only(site: Site, _: str) -> None:
    for path in (*site.root.rglob("*"), site.root):
        path.chmod(0o555 if path.is_dir() else 0o444)
    site.is_bound = True


def _closed_cache(site: Site, _: str) -> None:
    cache = site.top / "cache"
    cache.mkdir(mode=0o555)
    site.environ["KBUILD_CACHE_DIR"] = str(cache)
    site.is_bound = True


def _homeless(site: Site, _: str) -> None:
    del site.environ["HOME"]
    site.user = NAMELESS if IS_ROOT else None


def _no_temporary(site: Site, _: str) -> None:
    site.environ["TMPDIR"] = str(site.top / "nowhere")


def _folder_for_code(site: Site, _: str) -> None:
    for folder in (site.root / "torch-ext" / "demo", site.variant):
        _replaced(folder / "__init__.py").mkdir()


def _garbage(site: Site, _: str) -> None:
    noise = bytes((at * at + 7 * at) % 251 for at in range(60_000))
    (site.variant / "_demo_cuda_1a2b3c4.abi3.so").write_bytes(b"\x7fELF\x02\x01\x01" + noise)


def _damaged(site: Site, _: str) -> None:
    ours = (".kbuild/torch-cuda/state.json", "out/.kbuild-files.json", "kbuild.lock")
    for name in ours:
        target = site.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text('{"files": [[1]], "format": {}, "inputs": 7, "packages": "x"}')


def _options(site: Site, verb: str) -> None:
    site.more = WRONG.get(verb, ("--color", "x"))


def _full_disk(site: Site, _: str) -> None:
    """Project, cache and temporary files on a file system without a free byte."""
    disk = site.top / "disk"
    shutil.copytree(site.root, disk / "demo", symlinks=True)
    site.project = str(disk / "demo")
    for name in ("HOME", "TMPDIR"):
        site.environ[name] = str(disk / name)
        (disk / name).mkdir()
    for size in (1 << 16, 1 << 10, 1):
        try:
            with (disk / f"filler-{size}").open("wb", buffering=0) as file:
                while file.write(b"x" * size):
                    pass
        except OSError:
            continue


def _tiny_files(site: Site, _: str) -> None:
    site.file_size = 1500  # room for the words of the error


def _full_stdout(site: Site, _: str) -> None:
    site.stdout = "/dev/full"


def _no_cwd(site: Site, _: str) -> None:
    site.cwd = site.top / "gone"
    site.cwd.mkdir()
    site.is_cwd_gone = True


def _fifo(site: Site, _: str) -> None:
    os.mkfifo(_replaced(site.root / "build.toml"))


INPUTS: dict[str, Spoil] = {
    "project is missing": _given("{top}/nowhere"),
    "project is a file": _a_file,
    "build.toml is empty": _build_file(""),
    "build.toml is not UTF-8": _build_file(b'[general]\nname = "\xff\xfe"\n'),
    "build.toml is nested 1,000 deep": _build_file(f"x = {'[' * DEEP}{']' * DEEP}\n"),
    "build.toml has a number of 5,000 digits": _build_file(
        BUILD.replace("version = 1", f"version = {'9' * 5000}")
    ),
    "build.toml names an unknown backend": _build_file(BUILD.replace('"cuda"', '"abacus"')),
    "build.toml is a folder": lambda site, _: _replaced(site.root / "build.toml").mkdir(),
    "build.toml is a pipe": _fifo,
    "build.toml leads to itself": _looped("build.toml"),
    "path has a NUL": _given("a\0b"),
    "path has 5,000 characters": _given("x" * 5000),
    "folder's name has a newline": _named("de\nmo"),
    "folder's name is not UTF-8": _named(os.fsdecode(b"de\xffmo")),
    "build is a file": _file_in_place("build"),
    ".kbuild is a file": _file_in_place(".kbuild"),
    "project is read-only": _read_only,
    "cache cannot be written": _closed_cache,
    "no HOME": _homeless,
    "TMPDIR is missing": _no_temporary,
    "metadata.json is nested 100,000 deep": _metadata(
        b'{"id": ' + b"[" * 100 * DEEP + b"]" * 100 * DEEP + b"}"
    ),
    "metadata.json is not UTF-8": _metadata(b'{"id": "\xff\xfe"}'),
    "metadata.json leads to itself": _looped(f"{VARIANT}/metadata.json"),
    "__init__.py is a folder": _folder_for_code,
    "library is garbage": _garbage,
    "state, lock and manifests are damaged": _damaged,
    "an option's value is wrong": _options,
    "disk is full": _full_disk,
    "files may not grow": _tiny_files,
    "standard output is full": _full_stdout,
    "current folder was deleted": _no_cwd,
}
NEEDS_ROOT = frozenset({"disk is full"})


@contextmanager
def _site(top: Path, model: Path) -> Iterator[Site]:
    """A fresh copy, on a disk of its own where one is to be filled."""
    cell = Path(tempfile.mkdtemp(dir=top))
    cell.chmod(0o755)
    shutil.copytree(model, cell / "demo", symlinks=True)
    for name in ("home", "temporary", "here", "disk"):
        (cell / name).mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(cell / "home"),
        "TMPDIR": str(cell / "temporary"),
        "KBUILD_DRIVER": "local",
        "KBUILD_TOOLCHAIN": "host",
        "PYTHONDONTWRITEBYTECODE": "1",  # Python keeps half of a file that may not grow
        "HF_HUB_OFFLINE": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "PYTHONPATH": str(ROOT),
    }
    try:
        yield Site(cell, environ, project=str(cell / "demo"), cwd=cell / "here")
    finally:
        shutil.rmtree(cell, onerror=lambda *_: None)


@contextmanager
def _disk(site: Site, name: str) -> Iterator[None]:
    if name not in NEEDS_ROOT:
        yield
        return
    disk = site.top / "disk"
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=4m", "none", disk), check=True)  # noqa: TID251
    try:
        yield
    finally:
        subprocess.run(("umount", "-l", disk), check=True)  # noqa: TID251


def _own_files(folder: Path) -> dict[str, bytes]:
    """What the author wrote."""
    paths = (folder / "build.toml", *sorted((folder / "torch-ext").rglob("*")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def _take_rights(site: Site) -> None:
    """Be another user that may read what the superuser may, or one that permissions hold for."""
    if not IS_ROOT or (site.user is None and not site.is_bound):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    rights = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the high halves
    libc.capget(header, rights)
    if site.user is not None:
        libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
        os.setuid(site.user)
    elif site.is_bound:
        for at in (0, 1):
            rights[at] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, rights):
        raise OSError(ctypes.get_errno(), "capset")


def _child(site: Site, argv: Sequence[str], said: Path) -> NoReturn:
    """Become the command; a code of its own where not even that works."""
    code = 99
    try:
        os.setsid()
        out = os.open(site.stdout or f"{said}.out", os.O_WRONLY | os.O_CREAT, 0o666)
        err = os.open(f"{said}.err", os.O_WRONLY | os.O_CREAT, 0o666)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(site.cwd)
        if site.is_cwd_gone:
            site.cwd.rmdir()
        os.environ.clear()
        os.environ.update(site.environ)
        tempfile.tempdir = None
        for fallback in ("_candidate_tempdir_list",) if "nowhere" in site.environ["TMPDIR"] else ():
            setattr(tempfile, fallback, lambda: [site.environ["TMPDIR"]])  # and no /tmp either
        if site.file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (site.file_size, site.file_size))
        _take_rights(site)
        sys.dont_write_bytecode = True
        sys.argv = ["kbuild", *argv]
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", errors="backslashreplace")  # noqa: SIM115 - as Python opens it
        try:
            entry()
        except SystemExit as done:
            code = int(done.code or 0)
        try:
            sys.stdout.flush()
        except OSError:
            code = 120  # as Python ends when it cannot flush
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as its parent
        import traceback

        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def _ended(pid: int) -> int | None:
    """The exit code, below 0 for a signal; None after the limit, and everything of it is killed."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def run(site: Site, verb: str, name: str) -> Cell:
    """One cell."""
    words = (*ARGUMENTS[verb], *site.more)
    argv = (verb, *(word.replace("{project}", site.project) for word in words))
    said = site.top / "said"
    folder = Path(site.project) if "\0" not in site.project else site.root
    has_files = len(site.project) < 1000 and folder.is_dir()
    before = _own_files(folder) if has_files else {}
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(site, argv, said)
    code = _ended(pid)
    seconds = time.monotonic() - began
    err = Path(f"{said}.err").read_text(errors="replace") if Path(f"{said}.err").exists() else ""
    left = [path.name for path in Path(site.environ["TMPDIR"]).glob("*") if _is_ours(path)]
    changed = has_files and not _may_change(verb, code) and before != _own_files(folder)
    fault = _fault(code, err) or ("changed files" if changed else "")
    fault = fault or (f"left {left[0]} in TMPDIR" if left else "")
    return Cell(
        verb,
        name,
        0 if code is None else code,
        round(seconds, 2),
        fault,
        err[-400:],
    )


def _is_ours(path: Path) -> bool:
    return not path.name.startswith("torchinductor_")  # Torch's own, wherever it is imported


def _may_change(verb: str, code: int | None) -> bool:
    return verb == "update-build" and code == 0


def _fault(code: int | None, err: str) -> str:
    if code is None:
        return f"hangs for {LIMIT:.0f} s"
    if code == BUG or "this is a bug in kbuild" in err:
        return "a bug in kbuild"
    if "Traceback (most recent call last)" in err:
        return "traceback"
    if code < 0 or code in (99, 120):
        return f"ends with {code}"
    return "" if code == 0 or err.strip() else "says nothing"


def model_of(top: Path) -> Path:
    """The project, built and hashed."""
    folder = top / "model"
    (folder / "torch-ext" / "demo").mkdir(parents=True)
    (folder / "torch-ext" / "demo" / "__init__.py").write_text(PACKAGE)
    (folder / "build.toml").write_text(BUILD)
    (folder / "CARD.md").write_text("# Demo\n")
    (folder / "out").mkdir()
    with _site(top, folder) as site:
        for verb in ("build", "fill-card", "create-pyproject"):
            cell = run(site, verb, "nothing is wrong")
            if cell.fault or cell.code:
                words = (site.top / "said.err").read_text()
                raise SystemExit(f"{verb} of the good project: {cell}\n{words}")
        shutil.rmtree(folder)
        shutil.copytree(site.root, folder, symlinks=True)
    return folder


def matrix(verbs: Sequence[str], inputs: Sequence[str]) -> Iterator[Cell]:
    """Every cell that can be had here."""
    with tempfile.TemporaryDirectory(prefix="bad-inputs-") as name:
        top = Path(name)
        top.chmod(0o755)
        model = model_of(top)
        for chosen in inputs:
            for verb in verbs:
                with _site(top, model) as site, _disk(site, chosen):
                    INPUTS[chosen](site, verb)
                    yield run(site, verb, chosen)


def main() -> int:
    """Print the faults and the table of exit codes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="every cell's last words")
    parser.add_argument("--verb", action="append", choices=[verb.name for verb in COMMANDS])
    parser.add_argument("--input", action="append", choices=list(INPUTS))
    args = parser.parse_args()
    for verb in COMMANDS:
        import_module(verb.module)
    left_out = [] if IS_ROOT else sorted(NEEDS_ROOT)
    inputs = [name for name in args.input or INPUTS if name not in left_out]
    verbs = args.verb or [verb.name for verb in COMMANDS]
    cells = []
    for cell in matrix(verbs, inputs):
        cells.append(cell)
        if args.verbose:
            print(f"{cell.verb}, {cell.input}: {cell.code} {cell.said}", flush=True)
        elif cell.fault:
            print(f"{cell.verb}, {cell.input}: {cell.fault} ({cell.code})\n{cell.said}", flush=True)
    result = _summary(cells, left_out)
    print(json.dumps({key: result[key] for key in ("tried", "wrong", "codes", "left_out")}))
    if args.save:
        save("bad_inputs", result)
    return int(bool(result["wrong"]))


def _summary(cells: Sequence[Cell], left_out: Sequence[str]) -> dict[str, Any]:
    table: dict[str, dict[str, int]] = {}
    for cell in cells:
        table.setdefault(cell.input, {})[cell.verb] = cell.code
    return {
        "commands": len({cell.verb for cell in cells}),
        "inputs": len(table),
        "tried": len(cells),
        "wrong": sum(bool(cell.fault) for cell in cells),
        "slowest": max((cell.seconds for cell in cells), default=0.0),
        "codes": {str(code): n for code, n in sorted(Counter(c.code for c in cells).items())},
        "left_out": list(left_out),
        "faults": [asdict(cell) for cell in cells if cell.fault],
        "exit_codes": table,
    }


if __name__ == "__main__":
    sys.exit(main())
