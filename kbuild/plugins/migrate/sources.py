"""Reads a package as its author builds it: `setup.py`, or Python files alone.

A `setup.py` is run with stand-ins for setuptools and Torch (`setup_probe.py`), in a sandbox where
there is one; if it fails, its calls are read without running them. `setup.cfg` and `pyproject.toml`
have the metadata that `setup()` does not give.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.backends.capability import read_arch_list
from kbuild.checks.probe_process import bubblewrap_program, probe_environment, sandbox_command
from kbuild.plugins.migrate.package import DeclaredLicence, ForeignExtension, ForeignPackage
from kbuild.system.errors import UsageError
from kbuild.system.processes import Runner
from kbuild.system.temporary import temporary_folder

SETUP, CONFIG, PYPROJECT = "setup.py", "setup.cfg", "pyproject.toml"
_PROJECT_FILES = frozenset(
    (
        *("name", "packages", "package_dir", "py_modules", "package_data", "extensions", "others"),
        *("archs", "line", "lines", "license", "license_expression", "license_files"),
        *("include_package_data", "exclude_package_data", "install_requires", "dependencies"),
        *(
            "classifiers",
            "zip_safe",
            "setup_requires",
            "tests_require",
            "license-files",
            "readme",
            "dynamic",
        ),
        *("options", "long_description", "long_description_content_type", "license_file"),
    )
)
"""Keys that are taken over, or that only the build of the package needs."""
_DESCRIPTIONS = frozenset(
    (
        *("version", "description", "author", "author_email", "maintainer", "maintainer_email"),
        *("url", "urls", "download_url", "project_urls", "keywords", "platforms", "authors"),
        *("maintainers", "requires-python", "python_requires"),
    )
)
"""Keys that say something to people, or to the package index."""


@dataclass(frozen=True)
class PackageMetadata:
    """The keys of one file, and the line of each."""

    file: str
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def place(self, key: str) -> str:
        """`setup.py:12`."""
        line = self.lines.get(key) or self.lines.get("")
        return f"{self.file}:{line}" if line else self.file

    def licences(self) -> Iterator[DeclaredLicence]:
        """Licences that the package declares."""
        for key in ("license_expression", "license"):
            value = self.values.get(key)
            value = value.get("text", "") if isinstance(value, dict) else value
            if isinstance(value, str) and value.strip():
                yield DeclaredLicence(value.strip(), self.place(key))
        for text in _listed(self.values.get("classifiers")):
            if text.startswith("License ::") and text != "License :: OSI Approved":
                yield DeclaredLicence(text, self.place("classifiers"))

    def dependencies(self) -> Iterator[tuple[str, str]]:
        """Requirements of the package, each with its place."""
        for key in ("install_requires", "dependencies"):
            for text in _listed(self.values.get(key)):
                yield text, self.place(key)

    def left(self) -> Iterator[str]:
        """Sentences about what no kernel has, each with its place."""
        described = [key for key in self.values if key in _DESCRIPTIONS]
        if described:
            listed = ", ".join(f"`{key}`" for key in described)
            yield f"{self.place(described[0])}: {listed}: build.toml has no such keys"
        for key in self.values:
            if key not in _PROJECT_FILES | _DESCRIPTIONS:
                yield f"{self.place(key)}: `{key}` is not taken over{self._detail(key)}"

    def _detail(self, key: str) -> str:
        value = self.values[key]
        if key == "cmdclass":
            return f": what the package's own {' and '.join(map(str, value))} does is not known"
        if isinstance(value, Mapping):
            return f": {', '.join(map(str, value))}"
        return ""


def _listed(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [line.strip() for line in value.splitlines() if line.strip()]
    return [str(part) for part in value] if isinstance(value, (list, tuple)) else ()


def read_config(root: Path) -> PackageMetadata:
    """Sections `metadata` and `options` of `setup.cfg`."""
    text = _text(root / CONFIG)
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        parser = configparser.ConfigParser()
    values: dict[str, Any] = {}
    for section in ("metadata", "options"):
        values |= dict(parser[section]) if parser.has_section(section) else {}
    for section in ("options.entry_points", "options.package_data", "options.data_files"):
        if parser.has_section(section):
            values[section.partition(".")[2]] = dict(parser[section])
    if values.get("packages", "").startswith(("find:", "find_namespace:")):
        del values["packages"]
    values = {key: value for key, value in values.items() if value}
    return PackageMetadata(CONFIG, values, _lines_of_keys(text, values))


def read_pyproject(root: Path) -> PackageMetadata:
    """The table `project` of `pyproject.toml`, and extensions of the table of setuptools."""
    import tomli

    text = _text(root / PYPROJECT)
    try:
        document = tomli.loads(text)
    except ValueError:
        document = {}
    project = document.get("project")
    values = dict(project) if isinstance(project, dict) else {}
    tools = document.get("tool") if isinstance(document.get("tool"), dict) else {}
    setuptools = tools.get("setuptools") if isinstance(tools, dict) else None
    if isinstance(setuptools, dict):
        values |= {key: setuptools[key] for key in ("ext-modules",) if key in setuptools}
    return PackageMetadata(PYPROJECT, values, _lines_of_keys(text, values))


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _lines_of_keys(text: str, keys: Mapping[str, Any]) -> dict[str, int]:
    lines = {}
    for key in keys:
        pattern = rf"^\s*(?:{re.escape(key)}\s*[=:]|\[.*\b{re.escape(key)}\]+\s*$)"
        if match := re.search(pattern, text, re.MULTILINE):
            lines[key] = text.count("\n", 0, match.end()) + 1
    return lines


_READ = frozenset(
    (
        *("kind", "name", "sources", "line", "lines", "include_dirs", "define_macros"),
        *("undef_macros", "libraries", "extra_link_args", "extra_compile_args"),
        *("language", "py_limited_api", "optional", "depends"),
    )
)
"""Arguments of extensions that are taken over, or that change nothing of a kernel."""
_EXTENSIONS = ("CUDAExtension", "CppExtension", "SyclExtension")
_FAILED = "`setup.py` failed (%s): its calls were read, and what it computes is missing"


def read_package(root: Path, runner: Runner) -> ForeignPackage:
    """Read the package in a folder.

    Raises:
        UsageError: there is nothing in it that kbuild knows how to take over.
    """
    has_setup = (root / SETUP).is_file()
    if has_setup:
        document, notes = _run_setup(root, runner)
        lines = _keyword_lines(root, document)
        extensions = tuple(
            _extension(root, entry, document, notes) for entry in document["extensions"]
        )
        metadata = [PackageMetadata(SETUP, document, lines)]
    else:
        document, metadata, extensions, notes = {}, [], (), []
    metadata += [read_config(root), read_pyproject(root)]
    facts: dict[str, Any] = {}
    for part in metadata:
        facts |= {key: value for key, value in part.values.items() if value and key not in facts}
    modules, folders = _modules(root, facts)
    texts = (path.read_text("utf-8", "replace") for path in modules.values())
    if not extensions and not any("import triton" in text for text in texts):
        raise UsageError(
            f"`{root}` has no extension for Torch and no Triton kernel",
            hint="give the folder with setup.py or the Python package",
        )
    return ForeignPackage(
        root,
        str(facts.get("name") or root.name),
        tuple(licence for part in metadata for licence in part.licences()),
        extensions,
        modules,
        folders,
        tuple(dict.fromkeys(pair for part in metadata for pair in part.dependencies())),
        (*notes, *(note for part in metadata for note in part.left())),
    )


def _keyword_lines(root: Path, document: dict[str, Any]) -> dict[str, int]:
    """The lines of the arguments of `setup()`; entries of `document` get those of their own."""
    try:
        tree = ast.parse((root / SETUP).read_text("utf-8"))
    except (SyntaxError, ValueError):
        return {}
    calls = {
        node.lineno: node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(word in ast.unparse(node.func) for word in ("setup", "Extension"))
    }

    def lines(line: int) -> dict[str, int]:
        keywords = calls[line].keywords if line in calls else []
        return {"": line} | {word.arg: word.value.lineno for word in keywords if word.arg}

    for entry in document["extensions"]:
        entry["lines"] = lines(entry.get("line", 0))
    return lines(document.get("line", 0))


def _run_setup(root: Path, runner: Runner) -> tuple[dict[str, Any], list[str]]:
    probe = Path(__file__).with_name("setup_probe.py").resolve()
    root = root.resolve()
    with temporary_folder("setup") as folder:
        private = folder.resolve()
        bwrap, python = bubblewrap_program(), Path(sys.executable)
        command = (str(python), "-B", str(probe), str(root))
        environment = probe_environment(private)
        done = None
        if bwrap is not None:
            prefix = sandbox_command(bwrap, python, private, (probe, root))
            done = runner.run((*prefix, *command), cwd=private, env=environment)
        # A sandbox that cannot be made here is no fault of the script.
        if done is None or (not done.ok and done.output.startswith("bwrap: ")):
            done = runner.run(command, cwd=private, env=environment)
    lines = done.output.strip().splitlines()
    if done.ok:
        for line in reversed(lines):
            if line.startswith("{"):
                document: dict[str, Any] = json.loads(line)
                return document, []
    return _parse_setup(root), [_FAILED % (lines[-1] if lines else "no output")]


def _parse_setup(root: Path) -> dict[str, Any]:
    """Read the literals, and names of literals, in the calls of `setup.py`."""
    document: dict[str, Any] = {"extensions": []}
    try:
        tree = ast.parse((root / SETUP).read_text("utf-8"))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"`{root / SETUP}` is not Python: {error}") from None
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _literal(node.value, names)
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        values = {word.arg: _literal(word.value, names) for word in node.keywords if word.arg}
        if called == "setup":
            document |= {
                word.arg: values.get(word.arg) or ast.unparse(word.value)
                for word in node.keywords
                if word.arg not in (None, "ext_modules", "cmdclass")
            } | {"line": node.lineno}
        elif called in _EXTENSIONS:
            positional = dict(
                zip(("name", "sources"), (_literal(a, names) for a in node.args), strict=False)
            )
            entry = {key: value for key, value in (positional | values).items() if value}
            given = {"kind": called, "line": node.lineno}
            document["extensions"].append({"name": "", "sources": [], **entry, **given})
    # Of two with one name, in branches that were not run, the one for CUDA has more.
    for_cuda = {part["name"] for part in document["extensions"] if part["kind"] == "CUDAExtension"}
    document["extensions"] = [
        part
        for part in document["extensions"]
        if part["kind"] == "CUDAExtension" or part["name"] not in for_cuda
    ]
    return document


def _literal(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """A literal, or None; a list keeps those of its elements that are."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [value for part in node.elts if (value := _literal(part, names)) is not None]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _extension(
    root: Path, entry: Mapping[str, Any], document: Mapping[str, Any], notes: list[str]
) -> ForeignExtension:
    places = {key: f"{SETUP}:{line}" for key, line in entry["lines"].items() if line}
    flags = entry.get("extra_compile_args") or []
    flags = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": []}
    macros = [
        f"-D{pair[0]}" + (f"={pair[1]}" if len(pair) > 1 and pair[1] is not None else "")
        for pair in entry.get("define_macros") or ()
    ]
    macros += [f"-U{name}" for name in entry.get("undef_macros") or ()]
    extension = ForeignExtension(
        str(entry["name"]),
        tuple(_relative(root, source) for source in entry["sources"]),
        tuple(_relative(root, str(folder)) for folder in entry.get("include_dirs") or ()),
        (*map(str, flags.get("cxx") or ()), *macros),
        (*map(str, flags.get("nvcc") or ()), *macros),
        tuple(map(str, entry.get("libraries") or ())),
        tuple(map(str, entry.get("extra_link_args") or ())),
        read_arch_list(str(document.get("archs") or "")),
        entry.get("kind") == "CUDAExtension",
        places,
    )
    place = extension.place("extra_compile_args")
    for compiler in flags.keys() - {"cxx", "nvcc"}:
        listed = " ".join(map(str, flags[compiler]))
        notes.append(f"{place}: the flags of `{compiler}` are not taken over: {listed}")
    for key in entry.keys() - _READ:
        value = f": {entry[key]}" if isinstance(entry[key], (str, list)) else ""
        notes.append(f"{extension.place(key)}: `{key}` is not taken over{value}")
    return extension


def _relative(root: Path, path: str) -> str:
    """Relative to the root where it is inside; as it is otherwise."""
    whole = Path(path) if Path(path).is_absolute() else root.resolve() / path
    try:
        return Path(*whole.parts).resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path


def _modules(root: Path, facts: Mapping[str, Any]) -> tuple[dict[str, Path], dict[str, Path]]:
    """The Python modules that are installed, and the folders of packages."""
    packages, single = facts.get("packages") or (), facts.get("py_modules") or ()
    packages = packages.split() if isinstance(packages, str) else packages
    single = single.split() if isinstance(single, str) else single
    mapped = facts.get("package_dir")
    below: Mapping[str, str] = mapped if isinstance(mapped, Mapping) else {}
    modules = {name: root / below.get("", "") / f"{name}.py" for name in single}
    folders = {}
    if not packages and not single:
        tops = [root / below[""]] if below.get("") else [root, root / "src", root / "python"]
        top = next((top for top in tops if any(_packages(top))), root)
        packages = list(_packages(top))
        below = {"": str(top.relative_to(root)), **below}
    for package in packages:
        base, *rest = package.split(".")
        folder = root / below.get(
            package, str(Path(below.get(base) or Path(below.get("", ""), base), *rest))
        )
        if folder.is_dir():
            folders[package] = folder
        for path in sorted(folder.glob("*.py")):
            modules[f"{package}.{path.stem}"] = path
    return {name: path for name, path in modules.items() if path.is_file()}, folders


def _packages(root: Path) -> Iterator[str]:
    """The packages in a folder; those of tests left out."""
    skipped = {"tests", "test", "benchmarks", "examples", "docs", "build"}
    for init in sorted(root.glob("*/__init__.py")):
        if init.parent.name not in skipped:
            below = (path.parent for path in sorted(init.parent.rglob("__init__.py")))
            yield from (".".join(folder.relative_to(root).parts) for folder in below)
