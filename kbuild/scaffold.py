"""A new kernel project: its names, and the files of `templates/init/` with those names filled in.

`every/` is part of every project, `common/` of those for Torch; `torch/`, `noarch/`, `dsl/` or
`tvm-ffi/` holds the bindings, and each backend's or Python DSL's sources have a folder. In
`sections/` is what `build.toml` says of a kernel for a backend, or in a DSL. A plug-in has both
below `init/` of its own data. A file that ends in `.j2` is rendered; the others are copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from kbuild.backends import BACKENDS
from kbuild.backends.base import Backend
from kbuild.errors import FileConflictError, UsageError
from kbuild.languages.base import LANGUAGES, Language
from kbuild.licences import spdx_doubt
from kbuild.runtime.files import FileSet

PLACEHOLDER_OWNER = "your-org"
_SUFFIX = ".j2"
TORCH, TVM_FFI = FRAMEWORKS = ("torch", "tvm-ffi")
_OWNER = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_REPOSITORY = _OWNER


@dataclass(frozen=True)
class Scaffold:
    """What a new project is called and made for."""

    name: str
    """Kernel name: lower-case words joined by dashes."""
    owner: str
    repo_id: str
    license: str
    backends: tuple[str, ...]
    """In name order."""
    compiled: tuple[str, ...]
    """Those of the backends that get compiled sources; empty for a Python-only kernel."""
    language: str = ""
    """The Python DSL that the kernel is written in; empty for C++ and the like."""
    framework: str = TORCH
    """One of `FRAMEWORKS`."""

    @property
    def python_name(self) -> str:
        """The Python package's name."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The name in camel case."""
        return "".join(word.capitalize() for word in self.name.split("-"))

    @property
    def noarch(self) -> bool:
        """True for a Python-only kernel."""
        return not self.compiled

    @property
    def needs_gpu(self) -> bool:
        """True when nothing of the kernel runs on a CPU."""
        return bool(self.compiled) and not any(BACKENDS.get(b).is_host for b in self.backends)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of `templates/init/` that the project is made of."""
        if self.language:
            return ("every", "common", "dsl", self.language)
        sources = sorted({BACKENDS.get(name).template or name for name in self.compiled})
        if self.framework == TVM_FFI:
            return ("every", TVM_FFI, *(f"{TVM_FFI}-{source}" for source in sources))
        return ("every", "common", "noarch" if self.noarch else "torch", *sources)

    def variables(self) -> dict[str, Any]:
        """What a template may use."""
        from kbuild.config.schema import SCHEMA_ID

        derived = {
            "schema": SCHEMA_ID,
            "python_name": self.python_name,
            "class_name": self.class_name,
            "noarch": self.noarch,
            "needs_gpu": self.needs_gpu,
            "dispatch_keys": {b.define: b.dispatch_key for b in BACKENDS if b.section},
        }
        return asdict(self) | derived


def split_name(name: str) -> tuple[str, str]:
    """`org/MyKernel` as owner and repository; the placeholder when there is no owner.

    Raises:
        UsageError: not a repository's name.
    """
    owner, slash, repository = name.rpartition("/")
    owner = owner if slash else PLACEHOLDER_OWNER
    if _OWNER.fullmatch(owner) and _REPOSITORY.fullmatch(repository):
        return owner, repository
    raise UsageError(f"`{name}` is not a name", hint="write `name` or `owner/name`")


def kernel_name(repository: str) -> str:
    """The kernel name closest to a repository's or a folder's: `MyKernel` is `my-kernel`.

    One letter and Python's keywords are no package names: `x` is `x-kernel`.

    Raises:
        UsageError: no letter to start with.
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", repository)
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())
    name = re.sub(r"^[^a-z]+|-+$", "", name)
    if not name:
        raise UsageError(
            f"`{repository}` has no letter to start a kernel name with",
            hint="pass --name owner/name",
        )
    return f"{name}-kernel" if len(name) == 1 or iskeyword(name) else name


def validate_license(text: str) -> str:
    """The text when it is an SPDX expression.

    Raises:
        UsageError: it is not.
    """
    if doubt := spdx_doubt(text):
        raise UsageError(f"--license: {doubt[0]}", hint=doubt[1])
    return text


def has_template(backend: Backend, framework: str, templates: Path) -> bool:
    """True when a new project can have a kernel for the backend."""
    prefix = "" if framework == TORCH else f"{framework}-"
    section = Path("sections", f"{prefix}{backend.name}.toml{_SUFFIX}")
    return any((root / section).is_file() for root in _template_roots([backend], templates))


def _template_roots(owners: Iterable[Backend | Language], templates: Path) -> list[Path]:
    return [templates, *(owner.data / "init" for owner in owners if owner.data)]


def scaffold_files(
    scaffold: Scaffold, templates: Path, folders: Sequence[str] | None = None
) -> FileSet:
    """The project's files; those of some folders of the templates where they are given."""
    files: dict[str, bytes] = {}  # a DSL's own file takes the place of a common one
    languages = [LANGUAGES.get(scaffold.language)] if scaffold.language else []
    roots = _template_roots([*map(BACKENDS.get, scaffold.compiled), *languages], templates)
    for folder in (root / name for name in folders or scaffold.folders for root in roots):
        # The files of one folder; pip leaves bytecode beside templates that are Python.
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        template_files = (path for path in paths if "__pycache__" not in path.parts)
        for source in template_files:
            path = _target_path(source.relative_to(folder).as_posix(), scaffold)
            files[path.removesuffix(_SUFFIX)] = _rendered(source, scaffold, roots)
    return FileSet(files)


def validate_no_conflicts(files: FileSet, target: Path, option: str = "--overwrite") -> None:
    """Raise `FileConflictError` with every file that is in the way and says something else."""
    conflicts = [path for path, data in files.items() if _conflicts(target, path, data)]
    if conflicts:
        listed = "".join(f"\n    {path}" for path in conflicts)
        raise FileConflictError(
            f"files are in the way in `{target}`:{listed}", hint=f"{option} replaces them"
        )


def _target_path(path: str, scaffold: Scaffold) -> str:
    path = path.replace("__python_name__", scaffold.python_name)
    return path.replace("__name__", scaffold.name)


def _rendered(source: Path, scaffold: Scaffold, roots: Sequence[Path]) -> bytes:
    if source.suffix != _SUFFIX:
        return source.read_bytes()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(roots),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - source files, from names that were checked
    )
    template = environment.from_string(source.read_text("utf-8"))
    return template.render(scaffold.variables()).encode()


def _conflicts(target: Path, path: str, data: bytes) -> bool:
    file = target / path
    folders = list(file.relative_to(target).parents)[:-1]
    if any((target / folder).exists() and not (target / folder).is_dir() for folder in folders):
        return True
    if file.is_file() and file.read_bytes() == data:
        return False
    return file.exists() or file.is_symlink()
