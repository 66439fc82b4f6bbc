"""`stable_abi.toml` as values: the stable replacements of Torch's headers, names and methods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Literal

from kbuild.system.version import Version

UseKind = Literal["header", "name", "method"]
_TORCH = ("at", "c10", "torch", "caffe2")


@dataclass(frozen=True)
class Replacement:
    """The replacement of one non-stable use."""

    kind: UseKind
    use: tuple[str, ...]
    """Patterns of what sources write."""
    stable: str | None = None
    """Text to write instead; None when the stable ABI has nothing for it."""
    since: Version | None = None
    """The oldest Torch that the replacement runs on."""
    source: str = ""
    """The Torch header that has the replacement; `C++` when the language has it."""
    symbol: str = ""
    """Spelling in that header."""
    note: str = ""

    def fits(self, text: str) -> bool:
        """True when the entry is about this use."""
        return any(fnmatchcase(text, pattern) for pattern in self.use)

    def about(self, name: str, constants: Mapping[str, str]) -> Replacement:
        """The entry with its placeholders filled in for one use, given its last part."""
        values = {
            "name": name,
            "stem": PurePosixPath(name).stem,
            "constant": constants.get(name, name[1:]),
        }
        filled = {
            key: getattr(self, key).format(**values) for key in ("source", "symbol") if self.source
        }
        return replace(self, stable=self.stable.format(**values) if self.stable else None, **filled)


@dataclass(frozen=True)
class NewerApi:
    """Stable API that needs a younger Torch than the oldest one."""

    since: Version
    source: str
    names: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()


@dataclass(frozen=True)
class StableAbiTable:
    """The whole file; see its comments for what the parts mean."""

    torch: Version
    """The release whose headers were read."""
    base: Version
    entries: tuple[Replacement, ...]
    younger: tuple[NewerApi, ...]
    stable_headers: tuple[str, ...]
    stable_namespaces: tuple[str, ...]
    tensor_types: frozenset[str]
    tensor_methods: frozenset[str]
    constants: Mapping[str, str]
    dispatcher: Replacement
    operators: frozenset[str]
    """ATen operators that `dispatcher` can call, by name."""

    def header(self, name: str) -> Replacement | None:
        """The replacement of a header; None for a stable one and for one that is not Torch's."""
        if any(fnmatchcase(name, pattern) for pattern in self.stable_headers):
            return None
        entry = self._find("header", name)
        return entry.about(PurePosixPath(name).name, self.constants) if entry else None

    def name(self, name: str) -> Replacement | None:
        """The replacement of a macro or a qualified name; None for no use of Torch's C++ API.

        A name inside a listed one, such as an enumerator, is found by the listed one.
        """
        parts = name.split("::")
        if any(name == space or name.startswith(f"{space}::") for space in self.stable_namespaces):
            return None
        for count in range(len(parts), 0, -1):
            entry = self._find("name", "::".join(parts[:count]))
            if entry:
                return _for_nested_name(
                    entry.about(parts[count - 1], self.constants), parts[count - 1 :]
                )
        if len(parts) == 1 or parts[0] not in _TORCH:
            return None
        return self._operator("name", parts[-1] if len(parts) == 2 else "")  # noqa: PLR2004

    def method(self, name: str, form: str = "") -> Replacement | None:
        """The replacement of a method of a tensor; None when the stable tensor has it.

        Args:
            name: the method.
            form: `<>` with template arguments, `(...)` with arguments, else empty.
        """
        # An entry for the form counts first: the stable tensor may have the method in another form.
        entry = self._find("method", name + form) if form else None
        if entry is None and name in self.tensor_methods:
            return None
        entry = entry or self._find("method", name)
        return entry.about(name, self.constants) if entry else self._operator("method", name)

    def newer_release(self, name: str, *, is_method: bool) -> Version | None:
        """The Torch that a stable name or method needs, where it is not the oldest one."""
        for entry in self.younger:
            if name in (entry.methods if is_method else entry.names):
                return entry.since
        return None

    def listed(self, name: str) -> bool:
        """True when the table has exactly this macro or qualified name."""
        return self._find("name", name) is not None

    def _find(self, kind: UseKind, text: str) -> Replacement | None:
        exact = self._exact.get((kind, text))
        fitting = (entry for entry in self._patterned if entry.kind == kind and entry.fits(text))
        return exact or next(fitting, None)

    @cached_property
    def _exact(self) -> Mapping[tuple[UseKind, str], Replacement]:
        return {(entry.kind, use): entry for entry in self.entries for use in entry.use}

    @cached_property
    def _patterned(self) -> tuple[Replacement, ...]:
        return tuple(entry for entry in self.entries if any("*" in use for use in entry.use))

    def _operator(self, kind: UseKind, name: str) -> Replacement:
        if name in self.operators:
            return replace(self.dispatcher.about(name, self.constants), kind=kind)
        return Replacement(kind, (name,))


def _for_nested_name(entry: Replacement, parts: Sequence[str]) -> Replacement:
    """The entry for a name inside the listed one: the enumerator of a replaced enumeration."""
    if entry.stable and entry.stable.endswith(f"::{parts[0]}"):
        return replace(entry, stable="::".join([entry.stable, *parts[1:]]))
    return entry


@cache
def stable_abi_table() -> StableAbiTable:
    """The table that kbuild ships."""
    import tomli

    folder = resources.files("kbuild.plugins.advice")
    data = tomli.loads(folder.joinpath("stable_abi.toml").read_text("utf-8"))
    names = tomli.loads(folder.joinpath("stable_abi_names.toml").read_text("utf-8"))
    lines = folder.joinpath("aten_operators.txt").read_text("utf-8").splitlines()
    operators = " ".join(line for line in lines if not line.startswith("#")).split()
    return StableAbiTable(
        torch=Version.parse(names["torch"]),
        base=Version.parse(data["base"]),
        entries=tuple(_all_replacements(data, names)),
        younger=tuple(
            NewerApi(
                Version.parse(row["since"]),
                row["source"],
                frozenset(row.get("names", ())),
                frozenset(row.get("methods", ())),
            )
            for row in names["younger"]
        ),
        stable_headers=tuple(data["stable"]["headers"]),
        stable_namespaces=tuple(data["stable"]["namespaces"]),
        tensor_types=frozenset(data["tensor"]["types"]),
        tensor_methods=frozenset(data["tensor"]["methods"]),
        constants=data["constants"],
        dispatcher=_replacement("name", {"use": (), **data["dispatcher"]}),
        operators=frozenset(operators),
    )


def _all_replacements(data: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[Replacement]:
    """The replacements that are written by hand, and for other uses those of the same name."""
    kinds: Sequence[UseKind] = ("header", "name", "method")
    written = [_replacement(kind, row) for kind in kinds for row in data[kind]]
    known = {(entry.kind, use) for entry in written for use in entry.use}
    yield from written
    for entry in _named_alike(names, data["base"]):
        use = tuple(use for use in entry.use if (entry.kind, use) not in known)
        if use:
            yield replace(entry, use=use)


def _named_alike(names: Mapping[str, Any], base: str) -> Iterator[Replacement]:
    """Functions and headers that the stable ABI has under the same name."""
    source, new = "torch/csrc/stable/ops.h", names["new"]
    for name, came in names["functions"].items():
        note, since = _headers_note(new.get(name)), Version.parse(came)
        stable = f"torch::stable::{name}"
        use = (f"at::{name}", f"torch::{name}")
        yield Replacement("name", use, stable, since, source, name, note)
        yield Replacement("method", (name,), f"{stable}(self, ...)", since, source, name, note)
    for header, stable in names["headers"].items():
        note = _headers_note(new.get(stable))
        yield Replacement("header", (header,), f"<{stable}>", Version.parse(base), stable, "", note)


def _headers_note(release: str | None) -> str:
    return f"the headers of Torch {release} are the first that have it" if release else ""


def _replacement(kind: UseKind, row: Mapping[str, Any]) -> Replacement:
    since = Version.parse(row["since"]) if "since" in row else None
    texts = {key: row[key] for key in ("stable", "source", "symbol", "note") if key in row}
    return Replacement(kind, tuple(row["use"]), since=since, **texts)
