"""A compiler's command line: what it reads and writes, and the cache keys that follow from it."""

from __future__ import annotations

import os

from kbuild.system.file_state import hash_bytes

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    HashOf = Callable[[str], "str | None"]
    """Function from a file to its hash; None if it cannot be read."""


_SEARCH = ("-iquote", "-I", "-isystem", "-idirafter")
"""Options that name a folder of headers, in the order in which compilers search."""
_OUTPUTS = {"-o": "object", "-MF": "depfile", "-MT": "target", "-MQ": "target"}
FILE_MAP = "-ffile-prefix-map="
"""Option that gives a place the name that objects have of it."""
_ASSEMBLER_SEARCH = "-Wa,-I"
_GENERATED = "/generated/"
"""Name of generated projects, given by `-ffile-prefix-map`."""
_HOST = ("-Xcompiler=", "--compiler-options=")
"""Prefixes with which nvcc passes an option to the host compiler."""
_DEPENDENCIES = {"-MD", "--generate-dependencies-with-compile"}
_MORE_OUTPUTS = {"-MMD", "-MJ", "-E", "-S", "-M", "-MM", "--coverage", "--options-file", "-optf"}
_MORE_OUTPUTS_LIKE = (
    "@", "-gsplit-dwarf", "-save-temps", "--save-temps", "-fprofile-", "-ftest-cov",
)  # fmt: skip
"""Options that write files which the cache does not keep, or that hide other options in a file."""
_ARCHS = ("-gencode", "--generate-code")
_THREADS = ("--threads", "-t")
_JOBSERVER = ("--jobserver", "-jobserver")


class CompileCommand:
    """One parsed command line."""

    def __init__(self, argv: list[str], language: str, cwd: str) -> None:
        self.argv = argv
        self.plain = argv
        """The command without nvcc's threads, which change no object: the launcher decides them."""
        self.language = language
        self.cwd = cwd
        self.source = self.object = self.depfile = self.target = ""
        self.maps: list[tuple[str, str]] = []
        """`-ffile-prefix-map`: (place, name)."""
        self.search: list[tuple[int, str]] = []
        """(kind, folder), kinds numbered in search order."""
        self.options: list[str] = []
        """Options that change the object, places excluded."""
        self.archs = 1
        """Architectures that nvcc compiles for, one after the other or at a time."""
        self.threads = 1
        """Architectures that may be compiled at a time: all, or as many as the command says."""
        self.refusal = ""
        """Reason why the object cannot come from a cache; empty if it can."""
        self._has_depends = False
        asked = 0
        if language == "CUDA":
            # Threads change no object, so they are no part of the key.
            self.plain, asked = _without_threads(argv)
        self._read(iter(self.plain[1:]))
        self.options = [self._named_word(word) for word in self.options]
        self._validate()
        self.archs = max(1, sum(1 for word in self.options if word.startswith(_ARCHS)))
        self.threads = min(asked or self.archs, self.archs)

    @property
    def folders(self) -> list[str]:
        """Absolute folders that are searched for headers, the source's own first."""
        ordered = [folder for _, folder in sorted(self.search, key=lambda entry: entry[0])]
        own = os.path.dirname(self.source)
        return list(dict.fromkeys(self.absolute(folder) for folder in (own, *ordered)))

    @property
    def own_folders(self) -> list[str]:
        """The folders of the project's own headers: those that are not `-isystem`."""
        own = [folder for kind, folder in self.search if kind < _SEARCH.index("-isystem")]
        return [self.absolute(folder) for folder in (os.path.dirname(self.source), *own)]

    @property
    def searched(self) -> list[tuple[str, str]]:
        """(option, absolute folder) of all folders that the command names, in its order."""
        return [(_SEARCH[kind], self.absolute(folder)) for kind, folder in self.search]

    def absolute(self, path: str) -> str:
        """The path from the root; `..` resolved by name."""
        return os.path.normpath(os.path.join(self.cwd, path))

    def name(self, path: str) -> str:
        """The compiler's name of a place: the last map that fits wins."""
        for place, name in reversed(self.maps):
            if path.startswith(place):
                return name + path[len(place) :]
        return path

    def places(self, name: str) -> list[str]:
        """Paths in this build of a file that another build names; folders may share a name."""
        paths = [
            place + name[len(mapped) :]
            for place, mapped in reversed(self.maps)
            if name.startswith(f"{mapped}/")
        ]
        return [path for path in paths if self.name(path) == name] or [name]

    def place(self, name: str) -> str:
        """Path in this build of a file that another build names."""
        paths = self.places(name)
        return next(filter(os.path.exists, paths), paths[0])

    def _read(self, arguments: Iterator[str]) -> None:
        for argument in arguments:
            if argument in _OUTPUTS:
                setattr(self, _OUTPUTS[argument], next(arguments, ""))
            elif argument == "-c":
                self.source = next(arguments, "")
            elif argument in _DEPENDENCIES:
                self._has_depends = True
            elif not self._read_search(argument, arguments) and not self._read_map(argument):
                self.options.append(argument)
                if argument in _MORE_OUTPUTS or argument.startswith(_MORE_OUTPUTS_LIKE):
                    self.refusal = f"{argument} is not understood by the cache"

    def _read_search(self, argument: str, arguments: Iterator[str]) -> bool:
        for kind, flag in enumerate(_SEARCH):
            if argument.startswith(flag):
                # nvcc also takes `-isystem=DIR`.
                folder = argument[len(flag) :].lstrip("=") or next(arguments, "")
                self.search.append((kind, folder))
                return True
        return False

    def _read_map(self, word: str) -> bool:
        host = next((prefix for prefix in _HOST if word.startswith(prefix)), "")
        mapping = word[len(host) :]
        if host:  # quoted there when it has a space
            mapping = mapping.strip("'")
        # The place differs between builds and machines; only the name it is mapped to is in the
        # key.
        if not mapping.startswith(FILE_MAP):
            return False
        place, _, name = mapping[len(FILE_MAP) :].rpartition("=")
        self.maps.append((place, name))
        self.options.append(f"{host}{FILE_MAP}{name}")
        return True

    def _named_word(self, word: str) -> str:
        """The option; a generated folder of files for the assembler has its name, not its place.

        The key still covers these files: the source that includes them states their digests.
        """
        name = self.name(word.removeprefix(_ASSEMBLER_SEARCH))
        is_generated = word.startswith(_ASSEMBLER_SEARCH) and name.startswith(_GENERATED)
        return f"{_ASSEMBLER_SEARCH}{name}" if is_generated else word

    def _validate(self) -> None:
        if not self.source or not self.object:
            self.refusal = "not a compilation of one source"
        elif not self.refusal and not (self._has_depends and self.depfile):
            self.refusal = "the command writes no depfile"


def _without_threads(argv: list[str]) -> tuple[list[str], int]:
    """The arguments, and the number of threads that was asked for; 0 when the command has none."""
    kept: list[str] = []
    asked = ""
    arguments = iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in _THREADS:
            asked = value if equals else next(arguments, "")
        elif argument not in _JOBSERVER:
            kept.append(argument)
    return kept, int(asked) if asked.isdigit() else 0


OBJECT_FORMAT = "kbuild-object 4"
CLOCK_MACROS = (b"__DATE__", b"__TIME__", b"__TIMESTAMP__")
COMPILER_ID = "KBUILD_COMPILER_ID"
"""Variable with a fingerprint that replaces the compilers' path and content."""
COMPILER_VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH", "GCC_EXEC_PREFIX",
    "COMPILER_PATH", "SDKROOT", "MACOSX_DEPLOYMENT_TARGET", "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "ROCM_PATH", "HIP_PATH", COMPILER_ID,
)  # fmt: skip
"""Environment variables that compilers read: part of the key."""


def object_key(
    command: CompileCommand,
    environ: Mapping[str, str],
    hash_of: HashOf,
    versions: str = "",
    store: str = "",
) -> str:
    """Key of all objects that this command can give; their headers tell them apart.

    `hash_of` answers for source and compilers. `versions` are the compilers', as in
    `LauncherSettings.compilers`. `store` is described at `compiler_identity`.
    """
    # Only the C++ compiler compiles C++: the other versions do not matter for it.
    entries = versions.split(";")
    return _digest(
        OBJECT_FORMAT,
        *compiler_identity(command, environ, hash_of, store),
        *[entry for entry in entries if command.language != "CXX" or entry.startswith("c++=")],
        *(f"{name}={environ[name]}" for name in COMPILER_VARIABLES if name in environ),
        command.name(command.cwd),
        *_identity(command),
        str(hash_of(command.absolute(command.source))),
    )


def unit_key(command: CompileCommand) -> str:
    """Key of the unit without its source's content, for its history."""
    return _digest(command.argv[0], *_identity(command))


def source_key(command: CompileCommand) -> str:
    """Key of the unit's source, whatever its flags and compiler are."""
    return _digest(*_identity(command)[:2])


def _identity(command: CompileCommand) -> tuple[str, ...]:
    source = command.name(command.absolute(command.source))
    return (command.language, source, "\n".join(command.options))


def compiler_programs(command: CompileCommand, environ: Mapping[str, str]) -> list[str]:
    """The compilers' files; a name that leads to none stays as it is."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return [_resolve_program(name, folders) for name in _compiler_names(command, environ)]


def _compiler_names(command: CompileCommand, environ: Mapping[str, str]) -> list[str]:
    names = [command.argv[0]]
    if command.language == "CUDA":
        asked = [
            word for word in command.options if word.startswith(("-ccbin=", "--compiler-bindir="))
        ]
        names.append(asked[-1].partition("=")[2] if asked else environ.get("NVCC_CCBIN", "g++"))
    return names


def _resolve_program(name: str, folders: list[str]) -> str:
    program = name
    if "/" not in name:
        candidates = (f"{folder}/{name}" for folder in folders)
        program = next((path for path in candidates if os.access(path, os.X_OK)), name)
    return os.path.realpath(program) if "/" in program else program


def compiler_identity(
    command: CompileCommand, environ: Mapping[str, str], hash_of: HashOf, store: str = ""
) -> list[str]:
    """The identity of the compilers: a program may be called by several names.

    A compiler in the folder `store` has the name of its entry there, which follows from what the
    entry was made from, wherever the store is.
    """
    names = _compiler_names(command, environ)
    if COMPILER_ID in environ:
        return names
    store = f"{os.path.realpath(store)}/" if store else ""
    return [
        f"{os.path.basename(name)} {path.removeprefix(store)} {hash_of(path)}"
        for name, path in zip(names, compiler_programs(command, environ), strict=True)
    ]


def _digest(*parts: str) -> str:
    return hash_bytes("\0".join(parts).encode("utf-8", "surrogateescape"))
