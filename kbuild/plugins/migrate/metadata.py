"""The metadata of a package in `setup()`, `setup.cfg` and `pyproject.toml`."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbuild.plugins.migrate.licence import DeclaredLicence

SETUP, CONFIG, PYPROJECT = "setup.py", "setup.cfg", "pyproject.toml"
_READ = frozenset(
    (
        *("name", "packages", "package_dir", "py_modules", "package_data", "extensions", "others"),
        *(
            "archs",
            "line",
            "lines",
            "license",
            "license_expression",
            "license_files",
            "classifiers",
        ),
        *("include_package_data", "exclude_package_data", "install_requires", "dependencies"),
        *("zip_safe", "setup_requires", "tests_require", "license-files", "readme", "dynamic"),
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
        """The licences that it declares."""
        for key in ("license_expression", "license"):
            value = self.values.get(key)
            value = value.get("text", "") if isinstance(value, dict) else value
            if isinstance(value, str) and value.strip():
                yield DeclaredLicence(value.strip(), self.place(key))
        for text in _listed(self.values.get("classifiers")):
            if text.startswith("License ::") and text != "License :: OSI Approved":
                yield DeclaredLicence(text, self.place("classifiers"))

    def dependencies(self) -> Iterator[tuple[str, str]]:
        """Each requirement, with its place."""
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
            if key not in _READ | _DESCRIPTIONS:
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
