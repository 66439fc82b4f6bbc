"""What surrounds a probe: an environment of chosen variables, and a sandbox where there is one.

The sandbox is bubblewrap's. Inside, every path is what it is outside, so that what a process says
of its files holds there too. The file system is read-only; homes, temporary folders and sockets
are not there, except for what the interpreter and the question need. There is no network.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from kbuild.scratch import temporary_base

PROGRAM = "bwrap"
_DEVICES = ("nvidia*", "kfd", "dri", "dxg", "accel")
_HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run")  # noqa: S108 - hidden, not used
_DRIVERS = ("/run/opengl-driver", "/run/opengl-driver-32", "/run/current-system", "/run/nvidia")
"""Where NixOS and containers keep drivers."""
_SYSTEM = frozenset({"usr", "bin", "sbin", "lib", "lib64", "etc", "nix", "proc", "sys", "dev"})
"""Folders of `/` that hold what programs need: a home in one of them is not hidden."""
_OF_PREFIX = ("bin", "lib", "lib64", "pyvenv.cfg")

_PASSED = re.compile(
    r"(?:LD|DYLD|TORCH|PYTORCH|ATEN|C10|KINETO|TRITON|TVM|CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|HIP|HSA|ROCM"
    r"|ROCR|GPU|AMD|MIOPEN|SYCL|ZE|ONEAPI|UR|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|MALLOC|LC)_\w*"
    r"|PATH|LANG|LANGUAGE|TZ|GLIBC_TUNABLES|CONDA_PREFIX|VIRTUAL_ENV|PYTHONPATH|PYTHONHOME"
    r"|PYTHONNOUSERSITE|SYSTEMROOT|WINDIR|COMSPEC|PATHEXT"
)
"""What the loader, Python, frameworks and device runtimes listen to."""
_SECRET = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH|COOKIE|PROXY")
_FIXED = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONSAFEPATH": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def passed() -> dict[str, str]:
    """The variables that a probe gets, but for those that name its private folder.

    Relative entries of a search path would mean the private folder; they are left out.
    """
    chosen = {k: v for k, v in os.environ.items() if _PASSED.fullmatch(k) and not _SECRET.search(k)}
    for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"):
        if name in chosen:
            chosen[name] = os.pathsep.join(filter(os.path.isabs, chosen[name].split(os.pathsep)))
    return {**chosen, **_FIXED, "PYTHONUSERBASE": _user_base()}


def environment(private: Path) -> dict[str, str]:
    """The whole environment of a probe whose home is the folder."""
    folder = str(private)
    own = ("HOME", "USERPROFILE") if sys.platform == "win32" else ("HOME",)
    return {**passed(), **dict.fromkeys((*own, "TMPDIR", "TMP", "TEMP"), folder)}


def _user_base() -> str:
    """Where the user's own packages are; they belong to the interpreter, the home does not."""
    return os.environ.get("PYTHONUSERBASE") or str(Path.home() / ".local")


def program() -> Path | None:
    """Bubblewrap; None when it is not installed, or not wanted."""
    is_wanted = sys.platform == "linux" and os.environ.get("KBUILD_SANDBOX") != "off"
    found = shutil.which(PROGRAM) if is_wanted else None
    return Path(found) if found else None


def command(bwrap: Path, python: Path, private: Path, needed: Iterable[Path]) -> tuple[str, ...]:
    """What goes before the command of a probe.

    Args:
        bwrap: bubblewrap.
        python: the interpreter.
        private: the folder in which it runs, which is empty and its own.
        needed: files and folders that it reads.
    """
    variables = passed()
    readable = (*needed, *_of_interpreter(python), *_named_in(variables))
    hidden = _hidden()
    bound = sorted({str(path) for path in readable if _is_below(path, hidden)})
    return (
        str(bwrap),
        *("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *(part for device in _devices() for part in ("--dev-bind-try", device, device)),
        *(part for folder in hidden for part in ("--tmpfs", folder)),
        *(part for path in (*_DRIVERS, *bound) for part in ("--ro-bind-try", path, path)),
        *("--tmpfs", str(private), "--chdir", str(private), "--"),
    )


def _hidden() -> tuple[str, ...]:
    """Folders in whose place there is an empty one; real paths, none below another."""
    homes = (str(Path.home()), _account_home(), temporary_base())
    found = sorted({os.path.realpath(path) for path in (*_HIDDEN, *homes) if Path(path).is_dir()})
    kept: list[str] = []
    for path in found:
        if (
            path != os.sep
            and Path(path).parts[1] not in _SYSTEM
            and not _is_below(Path(path), kept)
        ):
            kept.append(path)
    return tuple(kept)


def _account_home() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):
        return str(Path.home())


def _is_below(path: Path, folders: Iterable[str]) -> bool:
    """Strictly, by the path itself or what it leads to; a folder as a whole is never given back."""
    named, real = str(path), os.path.realpath(path)
    inside = any(way.startswith(f"{folder}{os.sep}") for folder in folders for way in (named, real))
    return inside and not any(
        f"{folder}{os.sep}".startswith(f"{real}{os.sep}") for folder in folders
    )


def _devices() -> Iterator[str]:
    yield from (str(path) for pattern in _DEVICES for path in sorted(Path("/dev").glob(pattern)))


def _named_in(variables: Mapping[str, str]) -> Iterator[Path]:
    """What variables that a probe gets lead to; of the user's packages, their part is chosen."""
    for value in (value for name, value in variables.items() if name != "PYTHONUSERBASE"):
        yield from (path for path in map(Path, value.split(os.pathsep)) if path.is_absolute())


@cache
def _of_interpreter(python: Path) -> tuple[Path, ...]:
    """Programs, libraries and packages of an interpreter, and where its packages lead."""
    found: list[Path] = []
    prefixes: list[Path] = [Path(_user_base())]
    for step in _steps(Path(os.path.normpath(Path.cwd() / python))):
        found.append(step.parent)
        prefixes.append(step.parent.parent)
        prefixes += _bases(step)
    for prefix in dict.fromkeys(prefixes):
        found += [prefix / name for name in _OF_PREFIX]
        for packages in prefix.glob("lib*/python3*/*-packages"):
            found += _elsewhere(packages)
    found.append(Path.home() / ".cache" / "uv" / "archive-v0")  # uv can link packages to it
    return tuple(path for path in dict.fromkeys(found) if path.exists())


def _steps(python: Path) -> Iterator[Path]:
    """The program, and what its links lead to, step by step."""
    for _ in range(20):
        yield python
        if not python.is_symlink():
            break
        python = Path(os.path.normpath(python.parent / python.readlink()))
    yield python.resolve()


def _bases(program: Path) -> Iterator[Path]:
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


def _elsewhere(packages: Path) -> Iterator[Path]:
    """Where `.pth` files and editable installs lead."""
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
