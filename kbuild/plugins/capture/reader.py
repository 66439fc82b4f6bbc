"""Reads `capture` in `build.toml`, and the files of `captured/`, as ordinary sections of ops."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from kbuild.ops.dialects import DIALECTS
from kbuild.ops.language import LANGUAGES, Language
from kbuild.ops.model import IssueCollector
from kbuild.plugins.capture.captured_modules import (
    FUNCTIONS_MODULE,
    OPS_MODULE,
    captured_source,
    ops_source,
    projections,
)
from kbuild.plugins.capture.description import (
    Declaration,
    kernels_file,
    read_declaration,
    read_description,
    staleness,
    wrapper_file,
)
from kbuild.plugins.capture.function_digests import SourceDigests, source_digests
from kbuild.plugins.capture.launch_package import LaunchKernel, launch_files
from kbuild.plugins.capture.launches import (
    CapturedFunction,
    captured_file,
    launch_ops,
    module_of,
    parse_captured,
    wrapper_kernel,
)
from kbuild.plugins.capture.tables import CaptureSection
from kbuild.plugins.capture.tuning import with_tuning
from kbuild.project.config.issue import Issue, KeyPath, one_of
from kbuild.project.config.load import config_error
from kbuild.project.config.model_errors import table_issues
from kbuild.project.config.section_readers import PackageFiles, PluginReading, PluginSection
from kbuild.system.errors import ConfigError
from kbuild.system.sourcetree import SourceTree

KEY = "capture"


@dataclass(frozen=True)
class CaptureReading(PluginReading):
    """The `capture` tables of all kernels of a project, parsed."""

    tree: SourceTree = field(kw_only=True)
    declarations: Mapping[str, tuple[Declaration, ...]] = field(kw_only=True)
    """Kernel -> the functions that are captured whole."""
    launch_tables: Mapping[str, tuple[CaptureSection, ...]] = field(kw_only=True)
    """Kernel -> its tables with `launches`."""
    descriptions: Mapping[str, tuple[Mapping[str, Any], ...]] = field(kw_only=True)
    """Kernel -> the descriptions of captured functions, without their ops."""
    launches: Mapping[str, LaunchKernel] = field(kw_only=True)
    """Kernel -> the launches that are compiled."""

    def package_files(self, kernels: Collection[str], framework: str, folder: str) -> PackageFiles:
        """The modules of captured functions, and what runs the author's files."""
        launched = [name for name in kernels if name in self.launches]
        if framework != "torch":
            if launched:
                message = "only packages for Torch launch kernels from an author's Python"
                raise config_error(
                    self.tree, ("kernel", launched[0], KEY), message, "use `[torch]`"
                )
            for name in kernels:
                if any([*projections(each)] for each in self.descriptions.get(name, ())):
                    message = "only packages for Torch have gradients of captured functions"
                    raise config_error(self.tree, ("kernel", name, KEY), message, "use `[torch]`")
            return PackageFiles()
        files = launch_files([self.launches[name] for name in launched], folder)
        if not any(self.declarations.get(name) for name in kernels):
            return files
        wrappers = [each for name in kernels for each in self.descriptions.get(name, ())]
        texts = {**files.texts, FUNCTIONS_MODULE: captured_source(wrappers)}
        text = ops_source(wrappers)
        modules = (OPS_MODULE.removesuffix(".py"),) if text else ()
        texts |= {OPS_MODULE: text} if text else {}
        return PackageFiles(texts, files.sources, modules)


class CaptureReader:
    """Reads `capture`; see `kbuild.project.config.section_readers.SectionReader`."""

    value_type = tuple[CaptureSection, ...]

    def read(self, tables: Mapping[str, Mapping[str, Any]], tree: SourceTree) -> CaptureReading:
        """Read the tables, and what the project has of what they capture."""
        kernels = [_KernelReader(name, table, tree) for name, table in tables.items()]
        for kernel in kernels:
            kernel.read()
        return CaptureReading(
            {kernel.name: tuple(kernel.sections) for kernel in kernels},
            tuple(issue for kernel in kernels for issue in kernel.place.issues),
            {kernel.name: tuple(kernel.build.issues) for kernel in kernels},
            tuple(path for kernel in kernels for path in kernel.inputs),
            tree=tree,
            declarations={kernel.name: tuple(kernel.declarations) for kernel in kernels},
            launch_tables={kernel.name: tuple(kernel.launch_tables) for kernel in kernels},
            descriptions={kernel.name: tuple(kernel.descriptions) for kernel in kernels},
            launches={
                kernel.name: kernel.launches for kernel in kernels if kernel.launches is not None
            },
        )


READER = CaptureReader()


class _KernelReader:
    """Reads `capture` of one kernel."""

    def __init__(self, name: str, table: Mapping[str, Any], tree: SourceTree) -> None:
        self.name, self._table, self._tree = name, table, tree
        self.place = IssueCollector(("kernel", name, KEY))
        """Collects what is wrong with the tables."""
        self.build = IssueCollector(("kernel", name, KEY))
        """Collects what keeps the kernel from being built until something is captured."""
        self.sections: list[PluginSection] = []
        self.inputs: list[str] = []
        self.declarations: list[Declaration] = []
        self.launch_tables: list[CaptureSection] = []
        self.descriptions: list[Mapping[str, Any]] = []
        self.launches: LaunchKernel | None = None

    def read(self) -> None:
        """Fill the attributes."""
        functions = []
        for index, (table, section) in enumerate(self._tables()):
            if section is not None and section.launches:
                self.launch_tables.append(section)
            elif section is not None:
                place = self.place.at(index)
                declaration = read_declaration(section, place)
                if declaration is not None:
                    self.declarations.append(declaration)
                    functions.append((place, table, declaration))
        language = self._table.get("language")
        if not isinstance(language, str) or DIALECTS.find(language) is None:
            return  # a rule of `build.toml` reports it
        texts = self._texts()
        try:
            if self.launch_tables:
                self._read_launches(LANGUAGES.get(language), texts)
            for place, table, declaration in functions:
                self._read_function(place, table, declaration, texts)
        except ConfigError as error:  # a source that is no Python, or a file of `captured/`
            self.build.issues.extend(
                Issue((), problem.message, problem.hint, "error", problem.file, problem.line)
                for problem in error.problems
            )

    def _tables(self) -> Iterator[tuple[Mapping[str, Any], CaptureSection | None]]:
        """Pairs of a table and its checked form; None in place of a table with an error."""
        value = self._table[KEY]
        if not isinstance(value, list):
            self.place.error("must be a list of tables", f"`[[kernel.{self.name}.{KEY}]]`")
            return
        for index, table in enumerate(value):
            place = self.place.at(index)
            try:
                section = CaptureSection.model_validate(table)
            except ValidationError as error:
                place.issues.extend(table_issues(error, CaptureSection, place.path))
                yield {}, None
                continue
            given = [key for key in ("function", "launches") if key in table]
            if len(given) == 1:
                yield table, section
                continue
            message = "has both `function` and `launches`" if given else "says not what is captured"
            place.error(message, '`function = "module:name"`, or `launches = ["module"]`')
            yield {}, None

    def _texts(self) -> SourceDigests:
        written = self._table.get("src")
        paths = written if isinstance(written, list) else ()
        known = [posixpath.normpath(path) for path in paths if isinstance(path, str)]
        texts = {path: self._tree.read_text(path) for path in known if self._tree.is_file(path)}
        return source_digests(texts)

    def _captured(self, path: str, missing: str, hint: str) -> str | None:
        """The text of a file that `kbuild capture` writes; None where it is missing."""
        if not self._tree.is_file(path):
            self.build.error(missing, hint)
            return None
        self.inputs.append(path)
        return self._tree.read_text(path)

    def _read_launches(self, language: Language, texts: SourceDigests) -> None:
        """Add the ops of the launches, by the source of their kernels."""
        if language.launch_runtime is None:
            message = f"launches of `{language.name}` kernels cannot be captured"
            self.place.error(message, "describe the ops in `op`")
            return
        functions = list(self._functions(texts))
        tables: list[Mapping[str, Any]] = []
        for number, ops in enumerate(launch_ops(self.name, functions)):
            is_first = number == 0 and "op" not in self._table
            name = self.name if is_first else f"{self.name}_launches_{number}"
            # The author's Python runs the hooks.
            own = [{**op, "hooks": "none"} for op in ops.ops]
            table = {"src": list(texts.imported(ops.source)), "op": own}
            self.sections.append(PluginSection(name, ops.source, table))
            tables += ops.functions
        self.launches = LaunchKernel(
            language,
            _pins(self._table),
            texts.paths,
            tuple(tables),
            any(table.fallback == "jit" for table in self.launch_tables),
        )

    def _functions(self, texts: SourceDigests) -> Iterator[CapturedFunction]:
        """The kernel functions that are captured at their launches."""
        file = captured_file(self.name)
        missing = f"kernel.{self.name} captures launches, and `{file}` does not exist"
        hint = "record them: `kbuild capture --record -- pytest tests`, on a GPU or interpreted"
        text = self._captured(file, missing, hint)
        if text is None:
            return
        captured = parse_captured(text, file)
        patterns = [pattern for table in self.launch_tables for pattern in table.launches]
        has_functions = False
        for function in captured.functions:
            if function.source not in texts.paths:
                message = f"`{function.source}` is not in `src` of kernel.{self.name}"
                hint = "record the launches again: `kbuild capture --record -- COMMAND`"
                self.build.issues.append(Issue((), message, hint, "error", file))
            elif any(fnmatchcase(module_of(function.source), pattern) for pattern in patterns):
                has_functions = True
                if texts.of(function.source, function.name) != function.digest:
                    self.place.warning(
                        f"`{function.name}` in {function.source} has changed since its launches "
                        "were captured; `kbuild capture --check` lists such functions"
                    )
                yield function
        if not has_functions and not self.build.issues:
            self.build.error(f"`{file}` has no launches of {', '.join(patterns)}")

    def _read_function(
        self,
        place: IssueCollector,
        table: Mapping[str, Any],
        declaration: Declaration,
        texts: SourceDigests,
    ) -> None:
        """Add the ops of a function that is captured whole."""
        file = wrapper_file(self.name, declaration.name)
        missing = f"`{declaration.function}` is not captured: `{file}` does not exist"
        text = self._captured(file, missing, "run `kbuild capture`")
        if text is None:
            return
        data = read_description(text, file)
        own: dict[str, Any] = {}
        language = self._table["language"]
        written = LANGUAGES.get(language).captured_as
        sources = list(texts.imported(data["source"])) if data["source"] in texts.paths else []
        if written and written != language:
            kernels = kernels_file(self.name, declaration.name)
            missing = f"`{kernels}` does not exist, which `kbuild capture` writes"
            if (
                self._captured(kernels, missing, "run `kbuild capture`, and commit both files")
                is None
            ):
                return
            needed = DIALECTS.get(written).distributions
            pins = [pin for pin in _pins(self._table) if pin.partition("==")[0] in needed]
            own, sources = {"language": written, "toolchain": pins}, [kernels]
        if reason := staleness(declaration, data, texts):
            place.warning(f"{reason}; `kbuild capture` describes it anew")
        if not sources:
            self.build.error(f"`{file}` is of {data['source']}, which is not in `src`")
            return
        tune, description = table.get("tune", {}), {k: v for k, v in data.items() if k != "ops"}
        try:
            _validate_tuning(tune, data["ops"], place.at("tune"))
            ops = [_op(op, data, tune) for op in data["ops"]]
            captured_source([description])
            ops_source([description])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            message = f"`{file}` does not describe a captured function"
            self.build.error(message, "write it with `kbuild capture`")
            return
        name = wrapper_kernel(self.name, declaration.name)
        own |= {"src": sources, "op": ops}
        self.sections.append(PluginSection(name, declaration.name, own))
        self.descriptions.append(description)


def _op(
    op: Mapping[str, Any], description: Mapping[str, Any], tune: Mapping[str, Any]
) -> Mapping[str, Any]:
    """An op as a section has it."""
    # The function itself fills what its kernels need: what `reset_to_zero` names is for measuring.
    own = {**with_tuning(op, tune), "hooks": "tuning"}
    if str(op["schema"]).partition("(")[0] == description["forward"]["name"]:
        own["projections"] = list(projections(description))
    return own


def _pins(table: Mapping[str, Any]) -> tuple[str, ...]:
    pins = table.get("toolchain")
    pins = [pins] if isinstance(pins, str) else pins
    return tuple(map(str, pins)) if isinstance(pins, list) else ()


def _validate_tuning(
    table: Mapping[str, Any], ops: Sequence[Mapping[str, Any]], place: IssueCollector
) -> None:
    """Report what `tune` of a captured function names and its ops do not have."""
    known = {name for op in ops for name in op.get("tune", {}).get("sizes", {})}
    named: dict[str, KeyPath] = {name: ("sizes", name) for name in table.get("sizes", {})}
    for at, case in enumerate(table.get("cases", ())):
        named |= {name: ("cases", at, name) for name in case}
    for name, keys in named.items():
        if name not in known:
            message = f"`{name}` is neither a size nor an argument of the tuned ops"
            place.at(*keys).error(message, one_of(name, known))
    if "reference" in table:
        message = "ops of a captured function are compared with their first candidate"
        place.at("reference").error(message, "leave it out")
