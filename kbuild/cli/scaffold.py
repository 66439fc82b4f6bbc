"""A new kernel project: its names, and the files of `templates/init/` with those names filled in.

`every/` is part of every project, a migrated one as well, and `common/` of every new one. Each
framework's bindings have a folder (`torch/`, or `dsl-torch/` where they are generated), and so do
each backend's or Python DSL's sources. What differs for a framework is in a folder such as
`tvm-ffi-cuda/`. In `sections/` is what `build.toml` says of a framework, of a kernel for a backend,
or of one in a DSL. A plug-in has both below `init/` of its own data. A file that ends in `.j2` is
rendered; the others are copied.
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
from kbuild.backends.frameworks import FRAMEWORKS, Framework
from kbuild.ops.language import LANGUAGES, Language
from kbuild.project.licences import spdx_doubt
from kbuild.system.errors import FileConflictError, UsageError
from kbuild.system.files import FileSet

PLACEHOLDER_OWNER = "your-org"
_SUFFIX = ".j2"
DEFAULT_FRAMEWORK = "torch"
LANGUAGE_FRAMEWORK = "torch-stable-abi"
"""The framework of kernels in Python DSLs, whose launchers need no other, unless one is named."""
_OWNER = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_REPOSITORY = _OWNER


@dataclass(frozen=True)
class Scaffold:
    """The names and the targets of a new project."""

    name: str
    """Kernel name: lower-case words joined by dashes."""
    owner: str
    repo_id: str
    license: str
    backends: tuple[str, ...]
    """Backends in name order."""
    compiled: tuple[str, ...]
    """Backends that get compiled sources; empty for a Python-only kernel."""
    language: str = ""
    """The Python DSL that the kernel is written in; empty for C++ and the like."""
    framework: str = DEFAULT_FRAMEWORK

    @property
    def python_name(self) -> str:
        """The Python package's name."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The name in camel case."""
        return "".join(word.capitalize() for word in self.name.split("-"))

    @property
    def needs_gpu(self) -> bool:
        """True when nothing of the kernel runs on a CPU."""
        written = bool(self.compiled or self.language)
        return written and not any(BACKENDS.get(b).runs_on_cpu for b in self.backends)

    @property
    def is_captured(self) -> bool:
        """True when `kbuild capture` makes the ops, before a build."""
        return bool(self.language and self.compiled) and not LANGUAGES.get(self.language).takes_ops

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of `templates/init/` that it is made of; the files of later ones win."""
        framework = FRAMEWORKS.get(self.framework)
        if self.language:
            package, sources = ("dsl", f"dsl-{framework.table}"), [self.language]
        else:
            package = (framework.table, framework.name)
            sources = sorted({BACKENDS.get(name).template or name for name in self.compiled})
        layers = ("layers",) if framework.runtime_module == "torch" else ()
        shared = framework.compiled if self.language else framework.table == DEFAULT_FRAMEWORK
        parts = (
            part
            for source in sources
            for part in (*((source,) if shared else ()), f"{framework.name}-{source}")
        )
        return tuple(dict.fromkeys(("every", "common", *layers, *package, *parts)))

    def variables(self) -> dict[str, Any]:
        """The variables of templates."""
        from kbuild.project.config.schema import SCHEMA_ID

        framework = FRAMEWORKS.get(self.framework)
        derived = {
            "schema": SCHEMA_ID,
            "python_name": self.python_name,
            "class_name": self.class_name,
            "package_root": framework.package_root,
            "framework_table": framework.table,
            "needs_gpu": self.needs_gpu,
            "is_captured": self.is_captured,
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


def has_template(backend: Backend, framework: Framework, templates: Path) -> bool:
    """True when a new project can have compiled sources for the backend."""
    section = Path("sections", f"{backend.name}.toml{_SUFFIX}")
    own = Path(f"{framework.name}-{backend.template or backend.name}")
    roots = _template_roots([backend], templates)
    if framework.name == DEFAULT_FRAMEWORK:
        return any((root / section).is_file() for root in roots)
    return any((root / own).is_dir() for root in roots)


def language_frameworks(language: Language, templates: Path) -> tuple[str, ...]:
    """The frameworks for new projects in a DSL: all that are compiled, and those with a template.

    Such a template starts the kernels of Python-only projects, which nobody compiles.
    """
    roots = _template_roots([language], templates)
    return tuple(
        framework.name
        for framework in FRAMEWORKS
        if framework.compiled
        or any((root / f"{framework.name}-{language.name}").is_dir() for root in roots)
    )


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
    root = FRAMEWORKS.get(scaffold.framework).package_root
    path = path.replace("__package_root__", root)
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
