"""C++ signatures as schemas of Torch ops: which types a binding takes, and at which line.

Of a source, messages show the label: the path of a file, or the name of an argument.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase

from kbuild.sources.cxx import (
    CxxToken,
    closing_sign,
    defined_macros,
    joined_tokens,
    split_tokens,
    tokens_of,
)
from kbuild.sources.cxx_declarations import compiled_tokens, declarations_of, is_reference
from kbuild.system.errors import ConfigError, Problem

LabelledText = tuple[str, str]
"""Label and text of a source."""
_INTEGERS = frozenset(
    (
        *("int", "long", "short", "unsigned", "signed", "size_t", "ssize_t", "ptrdiff_t"),
        *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
_FLOATS = frozenset(("double", "float"))
_STRINGS = frozenset(("string", "string_view"))
_LISTS = frozenset(("vector", "ArrayRef", "HeaderOnlyArrayRef", "array"))
_NAMED_LISTS = {"IntArrayRef": "int", "TensorList": "Tensor"}
_DTYPES = frozenset(("ScalarType", "Dtype"))
_DROPPED = frozenset(
    (
        *("const", "volatile", "&", "&&", "typename", "static", "inline", "extern", "constexpr"),
        *('"C"', "struct", "class", "__host__", "__forceinline__", "__inline__", "noexcept"),
    )
)
_MACRO = re.compile(r"[A-Z][A-Z0-9_]+")
_PLAIN = {"int": "int64_t", "float": "double", "bool": "bool", "str": "std::string"}
_DTYPE = "torch::headeronly::ScalarType"
_NOTHING = frozenset(
    ("nullopt", "std::nullopt", "c10::nullopt", "torch::nullopt", "{}", "py::none()")
)
_NAMESPACES = re.compile(r"\b(?:torch|at|c10|std)::")
_INTEGER = re.compile(r"\b(?:(?:unsigned|signed|long|short|int|char)\b ?)+")
_ALIASES = {
    "int64_t": "long", "uint64_t": "long unsigned", "size_t": "long unsigned", "int32_t": "int",
    "uint32_t": "unsigned", "IntArrayRef": "ArrayRef<long>", "TensorList": "ArrayRef<Tensor>",
    "Dtype": "ScalarType",
}  # fmt: skip
KNOWN_TYPES = (
    "Tensor, int64_t and other integers, double, float, bool, std::string, ScalarType, "
    "std::optional and lists of them; results may be std::tuple"
)


@dataclass(frozen=True)
class BoundType:
    """One type of a signature, in three spellings."""

    schema: str
    """Type in the op's schema, e.g. `Tensor?`."""
    boxed: str
    """The C++ type that Torch's dispatcher hands over, e.g. `std::optional<at::Tensor>`."""
    cxx: str
    """Type in the source, without references."""
    is_mutable: bool = False
    """Tensors by non-const reference."""


@dataclass(frozen=True)
class BoundParameter:
    """One parameter of a function."""

    name: str
    """Name in Python."""
    type: BoundType
    default: str | None = None
    """Default in the schema; None for a parameter that must be given."""
    declared: str = ""
    """The type with qualifiers and references, as C++ writes it."""


@dataclass(frozen=True)
class BoundFunction:
    """A function of C++ as an op."""

    name: str
    parameters: tuple[BoundParameter, ...]
    results: tuple[BoundType, ...]
    returns_tuple: bool = False
    declaration: str = ""
    """The function's declaration, for a file that does not have it."""
    is_chosen: bool = False
    """Branches of conditions declare it differently."""

    @property
    def schema(self) -> str:
        """`f(Tensor(a!) x, int n=1) -> (Tensor, Tensor)`."""
        parameters, mutable = [], 0
        for parameter in self.parameters:
            kind = parameter.type.schema
            if parameter.type.is_mutable:
                letter = ascii_lowercase[mutable % 26] * (1 + mutable // 26)
                kind = kind.replace("Tensor", f"Tensor({letter}!)")
                mutable += 1
            default = f"={parameter.default}" if parameter.default is not None else ""
            parameters.append(f"{kind} {parameter.name}{default}")
        if mutable == 1 and [result.is_mutable for result in self.results] == [True]:
            return f"{self.name}({', '.join(parameters)}) -> Tensor(a!)"
        results = ", ".join(result.schema for result in self.results)
        results = results if len(self.results) == 1 else f"({results})"
        return f"{self.name}({', '.join(parameters)}) -> {results}"


def read_signature(
    name: str,
    sources: Sequence[LabelledText],
    tensor: str,
    *,
    in_namespaces: bool = False,
    others: Collection[str] = (),
    macros: Collection[str] = (),
) -> BoundFunction:
    """The function of that name at the top level of one of the sources.

    Args:
        name: the function; with `in_namespaces` it may be qualified.
        sources: in the order in which they are searched.
        tensor: the class of tensors in C++: `at::Tensor` or `torch::stable::Tensor`.
        in_namespaces: whether functions of namespaces count.
        others: types of Torch that the ops take besides `KNOWN_TYPES`, e.g. `Scalar`.
        macros: those that flags define: they choose between branches that declare it differently.

    Raises:
        ConfigError: there is none, there are several with different parameters, or it has a type
            that an op cannot have; at its line.
    """
    reader = _SignatureReader(tensor, frozenset(others))
    try:
        signatures = _signatures(reader, sources, name, in_namespaces=in_namespaces)
    except ConfigError:  # perhaps in a branch that is not compiled
        signatures = {}
    # Several, or none: only macros can tell which branch is compiled.
    is_chosen = len(signatures) != 1
    if is_chosen:
        known = {*macros, *(name for _, text in sources for name in defined_macros(text))}
        signatures = _signatures(reader, sources, name, known, in_namespaces=in_namespaces)
    if not signatures:
        hint = "declare it at the top level, outside of namespaces and classes"
        raise _error(
            ", ".join(label for label, _ in sources), 0, f"there is no function `{name}`", hint
        )
    (function, label, name_token), *more = signatures.values()
    if more:
        _, other, again = more[0]
        what, hint = "is overloaded", "an op has one signature: rename one of them"
        if name_token.maybe and again.maybe:
            what = "depends on conditions that kbuild does not know"
            hint = "declare it once, outside of `#if`"
        message = f"`{name}` {what}: {other}:{again.line} declares it with other parameters"
        raise _error(label, name_token.line, message, hint)
    return replace(function, is_chosen=is_chosen)


_SignatureMatch = dict[tuple[str, ...], tuple[BoundFunction, str, CxxToken]]
"""By the types of parameters, the function, and label and name of its first declaration."""


def _signatures(
    reader: _SignatureReader,
    sources: Sequence[LabelledText],
    name: str,
    macros: Collection[str] | None = None,
    *,
    in_namespaces: bool,
) -> _SignatureMatch:
    """The declarations in every branch, or else in those that are compiled with the macros."""
    signatures: _SignatureMatch = {}
    for label, text in sources:
        if name.rpartition("::")[2] not in text:
            continue
        tokens = tokens_of(text) if macros is None else compiled_tokens(text, macros)
        for statement, at in declarations_of(tokens, name, in_namespaces=in_namespaces):
            function = reader.function(label, statement, at)
            types = (part.type for part in function.parameters)
            key = tuple(f"{_same_type(kind.cxx)}{kind.is_mutable}" for kind in types)
            if key in signatures:
                first, first_label, at_first = signatures[key]
                signatures[key] = _with_defaults(first, function), first_label, at_first
            else:
                signatures[key] = function, label, statement[at]
    return signatures


def _same_type(written: str) -> str:
    """Map all spellings of a type to one."""
    text = _NAMESPACES.sub("", written)
    text = re.sub(r"\w+", lambda match: _ALIASES.get(match[0], match[0]), text)

    def sorted_words(match: re.Match[str]) -> str:
        type_tokens = sorted(word for word in match[0].split() if word not in ("int", "signed"))
        return " ".join(type_tokens) or "int"

    return _INTEGER.sub(sorted_words, text)


def _with_defaults(function: BoundFunction, other: BoundFunction) -> BoundFunction:
    """The function with the defaults that another declaration of it has."""
    pairs = zip(function.parameters, other.parameters, strict=True)
    parameters = tuple(
        part if part.default is not None else replace(part, default=again.default)
        for part, again in pairs
    )
    return replace(function, parameters=parameters)


def _error(label: str, line: int, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(label, line, "", message, hint)])


@dataclass(frozen=True)
class _SignatureReader:
    """Reads declarations, with the class that tensors have."""

    tensor: str
    others: frozenset[str]
    """See `read_signature`."""

    def function(self, label: str, statement: Sequence[CxxToken], at: int) -> BoundFunction:
        """The function whose name is at a place of its declaration."""
        name = statement[at]
        if statement[0].text == "template":
            raise _error(label, name.line, f"`{name.text}` is a template",
                         "bind a function that calls it with types")  # fmt: skip
        end = closing_sign(statement, at + 1)
        parameters = []
        for number, part in enumerate(split_tokens(statement[at + 2 : end], ",")):
            if [token.text for token in part] != ["void"]:
                parameters.append(self._parameter(label, part, number, name.text))
        seen: set[str] = set()
        for number, parameter in enumerate(parameters):
            own = parameter.name
            while own in seen:
                own += "_"
            seen.add(own)
            parameters[number] = replace(parameter, name=own)
        # Python has defaults at the end alone.
        required = [at for at, part in enumerate(parameters) if part.default is None]
        for number in range(max(required, default=0)):
            parameters[number] = replace(parameters[number], default=None)
        returned = [token for token in statement[:at] if token.text not in _DROPPED]
        while len(returned) > 1 and _MACRO.fullmatch(returned[0].text):  # `MY_API`
            returned = returned[1:]
        after = [token.text for token in statement[end + 1 :]]
        if returned and returned[0].text == "auto" and "->" in after:
            arrow = end + 1 + after.index("->")
            returned = [token for token in statement[arrow + 1 :] if token.text not in _DROPPED]
        results, is_tuple = self._results(label, returned, name)
        if len(results) == 1 and results[0].schema == "Tensor":
            is_mutable = is_reference(statement[:at])
            results = (replace(results[0], is_mutable=is_mutable),)
        head = "".join(f"{token.text} " for token in statement[:at] if token.text != "static")
        types = ", ".join(
            " ".join(token.text for token in next(iter(split_tokens(part, "=")), part))
            for part in split_tokens(statement[at + 2 : end], ",")
        )
        return BoundFunction(
            name.text, tuple(parameters), results, is_tuple, f"{head}{name.text}({types});"
        )

    def _results(
        self, label: str, returned: Sequence[CxxToken], name: CxxToken
    ) -> tuple[tuple[BoundType, ...], bool]:
        if [token.text for token in returned] == ["void"]:
            return (), False
        base, arguments = _template_parts(returned)
        is_tuple = base in ("tuple", "pair")
        kinds = [self._type(part) for part in (arguments if is_tuple else (returned,))]
        if any(kind is None for kind in kinds):
            written = joined_tokens(returned)
            raise _error(
                label, name.line, f"`{name.text}` returns `{written}`, which no op can return",
                f"an op has {KNOWN_TYPES}",
            )  # fmt: skip
        return tuple(kind for kind in kinds if kind is not None), is_tuple

    def _parameter(
        self, label: str, tokens: Sequence[CxxToken], number: int, function: str
    ) -> BoundParameter:
        declared, *defaults = split_tokens(tokens, "=")
        texts = [token.text for token in declared]
        type_tokens = [token for token in declared if token.text not in _DROPPED]
        name, written = f"a{number}", declared
        is_named = (
            len(type_tokens) > 1
            and type_tokens[-1].kind == "name"
            and texts[-1] == type_tokens[-1].text
        )
        if is_named and texts[-2] != "::" and not _is_type_only(type_tokens):
            name, type_tokens, written = type_tokens[-1].text, type_tokens[:-1], declared[:-1]
        kind = self._type(type_tokens)
        if kind is None or "*" in texts:
            raise _error(
                label, declared[0].line,
                f"`{function}` takes `{' '.join(texts)}`, which no op can take",
                f"an op has {KNOWN_TYPES}",
            )  # fmt: skip
        if "Tensor" in kind.schema and is_reference(declared):
            kind = replace(kind, is_mutable=True)
        default = schema_default(joined_tokens(defaults[0]), kind.schema) if defaults else None
        name = f"{name}_" if keyword.iskeyword(name) else name
        return BoundParameter(name, kind, default, joined_tokens(written))

    def _type(self, tokens: Sequence[CxxToken]) -> BoundType | None:
        """The type; None when no op can have it."""
        type_tokens = [token for token in tokens if token.text not in _DROPPED]
        if not type_tokens or any(token.text == "*" for token in type_tokens):
            return None
        written = joined_tokens(type_tokens)
        base, arguments = _template_parts(type_tokens)
        if base == "optional" and len(arguments) == 1:
            inner = self._type(arguments[0])
            if inner is None or inner.schema.endswith("?"):
                return None
            return BoundType(f"{inner.schema}?", f"std::optional<{inner.boxed}>", written)
        if base in _NAMED_LISTS or (base in _LISTS and arguments):
            return self._list_type(base, arguments, written)
        return None if arguments else self._plain_type(base, type_tokens, written)

    def _list_type(
        self, base: str, arguments: Sequence[Sequence[CxxToken]], written: str
    ) -> BoundType | None:
        if base in _NAMED_LISTS:
            schema = _NAMED_LISTS[base]
            boxed = self.tensor if schema == "Tensor" else _PLAIN[schema]
            return BoundType(f"{schema}[]", f"std::vector<{boxed}>", written)
        inner = self._type(arguments[0])
        if inner is None or inner.schema.endswith(("?", "[]")):
            return None
        return BoundType(f"{inner.schema}[]", f"std::vector<{inner.boxed}>", written)

    def _plain_type(
        self, base: str, type_tokens: Sequence[CxxToken], written: str
    ) -> BoundType | None:
        if base == "Tensor":
            return BoundType("Tensor", self.tensor, written)
        if base in _DTYPES:
            return BoundType("ScalarType", _DTYPE, written)
        if base in self.others:
            return BoundType(base, written, written)
        texts = {word.text for word in type_tokens if word.text not in ("std", "::")}
        for schema, names in (("int", _INTEGERS), ("float", _FLOATS), ("bool", {"bool"})):
            if texts <= names:
                return BoundType(schema, _PLAIN[schema], written)
        return BoundType("str", _PLAIN["str"], written) if base in _STRINGS else None


def _is_type_only(type_tokens: Sequence[CxxToken]) -> bool:
    """`unsigned int` has two words and no name."""
    return all(word.text in _INTEGERS | _FLOATS for word in type_tokens)


_NUMBERS = {
    "int": re.compile(r"[+-]?(?:0|[1-9]\d*)"),
    "float": re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"),
}
"""Numbers that C++, schemas and Python read alike."""


def schema_default(text: str, schema: str) -> str | None:
    """A default value as schemas write it; None where they cannot."""
    if text in _NOTHING and schema.endswith("?"):
        return "None"
    if text == "{}" and schema.endswith("[]"):
        return "[]"
    if text[:1] == '"' and schema == "str" and "\\" not in text:
        return text
    if text in ("true", "false") and schema == "bool":
        return text.capitalize()
    number = text.replace(" ", "").replace("'", "").rstrip("fFlLuU").rstrip(".")
    pattern = _NUMBERS.get(schema)
    return number if pattern is not None and pattern.fullmatch(number) else None


def _template_parts(tokens: Sequence[CxxToken]) -> tuple[str, tuple[Sequence[CxxToken], ...]]:
    """`std::optional<T>` as `optional` and `T`."""
    texts = [token.text for token in tokens]
    if "<" not in texts:
        return texts[-1] if texts else "", ()
    opening = texts.index("<")
    if texts[-1] != ">":
        return "", ()
    return texts[opening - 1], tuple(split_tokens(tokens[opening + 1 : -1], ","))
