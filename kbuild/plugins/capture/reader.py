"""Reads `[[kernel.<name>.capture]]` tables, and the files of `captured/`, as sections of ops.

A table captures one `function` as a whole, or the `launches` of modules. A table with `function` is
a declaration; `kbuild capture` writes a description of the function into `captured/`. The launches
of a kernel are in one file there.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ValidationError

from kbuild.ops.language import LANGUAGES, Language
from kbuild.plugins.capture.captured_modules import OPS_MODULE, ops_source, projections
from kbuild.plugins.capture.description import (
    CaptureSection,
    Declaration,
    kernels_file,
    read_declaration,
    read_description,
    staleness,
    wrapper_file,
)
from kbuild.plugins.capture.function_digests import SourceDigests, source_digests
from kbuild.plugins.capture.functions_module import FUNCTIONS_MODULE, captured_source
from kbuild.plugins.capture.languages import captured_language
from kbuild.plugins.capture.launch_package import LaunchKernel, launch_files
from kbuild.plugins.capture.launches import (
    CapturedFunction,
    captured_file,
    module_of,
    parse_captured,
    wrapper_kernel,
)
from kbuild.plugins.capture.tuning import with_tuning
from kbuild.project.config.issue import Issue, IssueCollector, KeyPath, one_of
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
    kernels: Mapping[str, KernelReader] = field(kw_only=True)

    def package_files(self, kernels: Collection[str], framework: str, folder: str) -> PackageFiles:
        """Modules with captured functions, and modules in which launches start compiled images."""
        own = [self.kernels[name] for name in kernels if name in self.kernels]
        for kernel in own:
            needed, message = "torch", ""
            if kernel.launches is not None:
                language = kernel.launches.language.name
                needed = captured_language(language).framework
                message = f"packages that launch `{language}` kernels from an author's Python are"
            # An op with projections also returns tensors that its gradient needs.
            elif any(list(projections(each)) for each in kernel.descriptions):
                message = "packages with gradients of captured functions are"
            if message and needed != framework:
                place = ("kernel", kernel.name, KEY)
                raise config_error(self.tree, place, f"{message} for {needed}", f"use `[{needed}]`")
        files = launch_files([kernel.launches for kernel in own if kernel.launches], folder)
        if framework != "torch":
            return files  # the module of functions needs Torch: callers use the ops
        # The package may import functions that are declared, and not captured yet.
        if not any(kernel.declarations for kernel in own):
            return files
        descriptions = [description for kernel in own for description in kernel.descriptions]
        texts = {**files.texts, FUNCTIONS_MODULE: captured_source(descriptions)}
        if not (source := ops_source(descriptions)):
            return PackageFiles(texts, files.sources)
        texts[OPS_MODULE] = source
        op_modules = (OPS_MODULE.removesuffix(".py"),)  # it registers gradients
        return PackageFiles(texts, files.sources, op_modules=op_modules)


class CaptureReader:
    """Reads `capture`; see `kbuild.project.config.section_readers.SectionReader`."""

    value_type = tuple[CaptureSection, ...]

    def read(self, tables: Mapping[str, Mapping[str, Any]], tree: SourceTree) -> CaptureReading:
        """Read the tables, and the files in `captured/` that exist for them."""
        kernels = {name: KernelReader(name, table, tree) for name, table in tables.items()}
        for kernel in kernels.values():
            kernel.read()
        return CaptureReading(
            sections={name: tuple(kernel.sections) for name, kernel in kernels.items()},
            issues=tuple(issue for each in kernels.values() for issue in each.table_issues.issues),
            build_errors={name: tuple(k.capture_issues.issues) for name, k in kernels.items()},
            inputs=tuple(path for kernel in kernels.values() for path in kernel.inputs),
            tree=tree,
            kernels=kernels,
        )


READER = CaptureReader()


class KernelReader:
    """Reads the `capture` tables of one kernel, and keeps what is in them."""

    def __init__(self, name: str, table: Mapping[str, Any], tree: SourceTree) -> None:
        self.name, self._table, self._tree = name, table, tree
        self.table_issues = IssueCollector(("kernel", name, KEY))
        """Problems of the tables."""
        self.capture_issues = IssueCollector(("kernel", name, KEY))
        """Problems of `captured/`. They concern builds alone: `kbuild capture` solves them."""
        self.sections: list[PluginSection] = []
        self.inputs: list[str] = []
        self.declarations: list[Declaration] = []
        """Tables with `function`."""
        self.launch_tables: list[CaptureSection] = []
        """Tables with `launches`."""
        self.descriptions: list[Mapping[str, Any]] = []
        """Descriptions of the functions, as in `captured/` but without their ops."""
        self.launches: LaunchKernel | None = None
        """The launches that are compiled."""

    def read(self) -> None:
        """Fill the attributes."""
        functions = []
        for place, table, section in self._tables():
            if section.launches:
                self.launch_tables.append(section)
            else:
                declaration = read_declaration(section, place)
                if declaration is not None:
                    self.declarations.append(declaration)
                    functions.append((place, table, declaration))
        name = self._table.get("language")
        language = LANGUAGES.find(name) if isinstance(name, str) else None
        if language is None:
            return  # a rule of `build.toml` reports it
        digests = self._source_digests()
        try:
            if self.launch_tables:
                self._read_launches(language, digests)
            for place, table, declaration in functions:
                self._read_function(place, table, declaration, digests)
        except ConfigError as error:  # a source is not Python, or a file in `captured/` is damaged
            self.capture_issues.issues.extend(
                Issue((), problem.message, problem.hint, "error", problem.file, problem.line)
                for problem in error.problems
            )

    @property
    def watched(self) -> dict[str, list[str]]:
        """See `LaunchKernel.watched`."""
        return {
            key: [name for table in self.launch_tables for name in getattr(table, key)]
            for key in ("factories", "tuners")
        }

    def _tables(self) -> Iterator[tuple[IssueCollector, Mapping[str, Any], CaptureSection]]:
        """The tables without errors, each with its place and its checked form."""
        value = self._table[KEY]
        if not isinstance(value, list):
            self.table_issues.error("must be a list of tables", f"`[[kernel.{self.name}.{KEY}]]`")
            return
        for index, table in enumerate(value):
            place = self.table_issues.at(index)
            try:
                section = CaptureSection.model_validate(table)
            except ValidationError as error:
                place.issues.extend(table_issues(error, CaptureSection, place.path))
                continue
            given = [key for key in ("function", "launches") if key in table]
            if len(given) == 1:
                yield place, table, section
                continue
            message = "has both `function` and `launches`" if given else "names nothing to capture"
            place.error(message, '`function = "module:name"`, or `launches = ["module"]`')

    def _source_digests(self) -> SourceDigests:
        """Digests of the functions in the files of `src`."""
        written = self._table.get("src")
        paths = written if isinstance(written, list) else ()
        known = [posixpath.normpath(path) for path in paths if isinstance(path, str)]
        return source_digests(
            {path: self._tree.read_text(path) for path in known if self._tree.is_file(path)}
        )

    def _read_captured(self, path: str, missing: str, hint: str) -> str | None:
        """The text of a file that `kbuild capture` writes; None, with an error, without it."""
        if not self._tree.is_file(path):
            self.capture_issues.error(missing, hint)
            return None
        self.inputs.append(path)
        return self._tree.read_text(path)

    def _read_launches(self, language: Language, digests: SourceDigests) -> None:
        """Add the ops of the launches: one section for each source that has kernels."""
        if captured_language(language.name).runtime is None:
            message = f"launches of `{language.name}` kernels cannot be captured"
            self.table_issues.error(message, "describe the ops in `op`")
            return
        captured = list(self._captured_functions(digests))
        way = captured_language(language.name)
        has_jit = any(table.fallback == "jit" for table in self.launch_tables)
        if any(self.watched.values()) and not way.compiled_as:
            message = f"`factories` and `tuners` do not exist for `{language.name}`"
            self.table_issues.error(message, "leave them out: its launches need neither")
        launched_ops = list(way.ops_of(self.name, captured))
        # A source without ops has a tuned function whose kernels others have.
        for number, launched in enumerate(each for each in launched_ops if each.ops):
            # Sections with ops have different names: the kernel's own is used if it has no `op`.
            has_own_name = number == 0 and "op" not in self._table
            name = self.name if has_own_name else f"{self.name}_launches_{number}"
            # Hooks of `@triton.autotune` run in the author's Python, so ops must not repeat them.
            ops = [{**op, "hooks": "none"} for op in launched.ops]
            table = {"src": list(digests.imported(launched.source)), "op": ops}
            if way.compiled_as:
                # Importing a package changes the DSL in some libraries, so all files count.
                others = (path for path in digests.paths if path != launched.source)
                table |= {"language": way.compiled_as, "src": [launched.source, *others]}
            self.sections.append(PluginSection(name, launched.source, table))
        self.launches = LaunchKernel(
            language,
            toolchain=_pins(self._table),
            sources=digests.paths,
            functions=tuple(each for launched in launched_ops for each in launched.functions),
            # The sources call each other, so one table decides for all of them.
            has_jit=has_jit,
            watched=self.watched,
        )

    def _captured_functions(self, digests: SourceDigests) -> Iterator[CapturedFunction]:
        """The kernel functions whose launches `captured/` lists and the tables name."""
        file = captured_file(self.name)
        missing = f"kernel.{self.name} captures launches, and `{file}` does not exist"
        hint = "record them: `kbuild capture --record -- pytest tests`, on a GPU or interpreted"
        text = self._read_captured(file, missing, hint)
        if text is None:
            return
        patterns = [pattern for table in self.launch_tables for pattern in table.launches]
        has_functions = False
        for function in parse_captured(text, file).functions:
            if function.source not in digests.paths:
                message = f"`{function.source}` is not in `src` of kernel.{self.name}"
                hint = "record the launches again: `kbuild capture --record -- COMMAND`"
                self.capture_issues.issues.append(Issue((), message, hint, "error", file))
            elif any(fnmatchcase(module_of(function.source), pattern) for pattern in patterns):
                has_functions = True
                if digests.of(function.source, function.name) != function.digest:
                    self.table_issues.warning(
                        f"`{function.name}` in {function.source} has changed since its launches "
                        "were captured; `kbuild capture --check` lists such functions"
                    )
                yield function
        if not has_functions and not self.capture_issues.issues:
            self.capture_issues.error(f"`{file}` has no launches of {', '.join(patterns)}")

    def _read_function(
        self,
        place: IssueCollector,
        table: Mapping[str, Any],
        declaration: Declaration,
        digests: SourceDigests,
    ) -> None:
        """Add the ops of a function that is captured whole."""
        file = wrapper_file(self.name, declaration.name)
        missing = f"`{declaration.function}` is not captured: `{file}` does not exist"
        text = self._read_captured(file, missing, "run `kbuild capture`")
        if text is None:
            return
        data = read_description(text, file)
        if not (section := self._kernels_of(declaration, data, digests)):
            return
        if reason := staleness(declaration, data, digests):
            place.warning(f"{reason}; run `kbuild capture` to describe it again")
        if not section["src"]:
            self.capture_issues.error(f"`{file}` is of {data['source']}, which is not in `src`")
            return
        tune, description = table.get("tune", {}), {k: v for k, v in data.items() if k != "ops"}
        try:
            _validate_tuning(tune, data["ops"], place.at("tune"))
            ops = [_op(op, data, tune) for op in data["ops"]]
            # Packaging writes these modules: a damaged description has to fail before.
            captured_source([description])
            ops_source([description])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            message = f"`{file}` does not describe a captured function"
            self.capture_issues.error(message, "write it with `kbuild capture`")
            return
        name = wrapper_kernel(self.name, declaration.name)
        self.sections.append(PluginSection(name, declaration.name, {**section, "op": ops}))
        self.descriptions.append(description)

    def _kernels_of(
        self, declaration: Declaration, data: Mapping[str, Any], digests: SourceDigests
    ) -> Mapping[str, Any]:
        """The keys of a section that say where a function's kernels are; empty after an error."""
        language = LANGUAGES.get(self._table["language"])
        captured_as = captured_language(language.name).captured_as
        if captured_as in ("", language.name):
            source = data["source"]
            return {"src": list(digests.imported(source)) if source in digests.paths else []}
        # The DSL writes kernels in another language (NineToothed in Triton). `kbuild capture` has
        # kept them; a build compiles them without the DSL.
        file = kernels_file(self.name, declaration.name)
        missing = f"`{file}` does not exist, which `kbuild capture` writes"
        hint = "run `kbuild capture`, and commit both files"
        if self._read_captured(file, missing, hint) is None:
            return {}
        needed = LANGUAGES.get(captured_as).distributions
        pins = [pin for pin in _pins(self._table) if pin.partition("==")[0] in needed]
        return {"language": captured_as, "toolchain": pins, "src": [file]}


def _op(
    op: Mapping[str, Any], description: Mapping[str, Any], tune: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The table of an op, with the author's `tune` and the projections of the forward op."""
    # The captured function itself fills its tensors: `reset_to_zero` of a kernel is for tuning.
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
    """Report names in `tune` that the ops of the captured function do not have."""
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
