"""C++ signatures as schemas of Torch ops: which types a binding takes, and at which line."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbuild.errors import ConfigError, Problem
from kbuild.loading.inline_request import InlineSource
from kbuild.sources.cxx import CxxToken, read_cxx

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
        *('"C"', "C10_EXPORT", "TORCH_API", "[[maybe_unused]]", "struct", "class", "[", "]"),
        *("maybe_unused", "nodiscard"),
    )
)
_PLAIN = {"int": "int64_t", "float": "double", "bool": "bool", "str": "std::string"}
_DTYPE = "torch::headeronly::ScalarType"
_NOTHING = frozenset(("nullopt", "std::nullopt", "c10::nullopt", "torch::nullopt", "{}"))
KNOWN_TYPES = (
    "Tensor, int64_t and other integers, double, float, bool, std::string, ScalarType, "
    "std::optional and lists of them; results may be std::tuple"
)


@dataclass(frozen=True)
class BoundType:
    """One type of a signature, in three spellings."""

    schema: str
    """In the op's schema, e.g. `Tensor?`."""
    boxed: str
    """What Torch's dispatcher hands over in C++, e.g. `std::optional<at::Tensor>`."""
    cxx: str
    """As it is in the source, without references."""
    is_mutable: bool = False
    """A tensor by non-const reference."""


@dataclass(frozen=True)
class BoundParameter:
    """One parameter of a function."""

    name: str
    """As Python sees it."""
    type: BoundType
    default: str | None = None
    """In the schema; None for a parameter that must be given."""


@dataclass(frozen=True)
class BoundFunction:
    """A function of C++ as an op."""

    name: str
    parameters: tuple[BoundParameter, ...]
    results: tuple[BoundType, ...]
    returns_tuple: bool = False
    declaration: str = ""
    """The function's declaration, for a file that does not have it."""

    @property
    def schema(self) -> str:
        """`f(Tensor x, int n=1) -> (Tensor, Tensor)`."""
        parameters = []
        for at, parameter in enumerate(self.parameters):
            kind = parameter.type.schema
            if parameter.type.is_mutable:
                kind = f"Tensor({chr(ord('a') + at)}!)"
            default = f"={parameter.default}" if parameter.default is not None else ""
            parameters.append(f"{kind} {parameter.name}{default}")
        results = ", ".join(result.schema for result in self.results)
        return f"{self.name}({', '.join(parameters)}) -> ({results})"


def read_signature(name: str, sources: Sequence[InlineSource], tensor: str) -> BoundFunction:
    """The function of that name at the top level of one of the sources.

    Args:
        name: the function.
        sources: in the order in which they are searched.
        tensor: the class of tensors in C++: `at::Tensor` or `torch::stable::Tensor`.

    Raises:
        ConfigError: there is none, there are several with different parameters, or it has a type
            that an op cannot have; at its line.
    """
    functions: dict[tuple[BoundType, ...], BoundFunction] = {}
    for source in sources:
        for statement, at in _declarations(source.text, name):
            function = _read_function(source, statement, at, tensor)
            functions.setdefault(tuple(part.type for part in function.parameters), function)
    if not functions:
        labels = ", ".join(source.label for source in sources)
        hint = "declare it at the top level, outside of namespaces and classes"
        raise _error(labels, 0, f"there is no function `{name}`", hint)
    if len(functions) > 1:
        raise _error(
            sources[0].label, 0, f"`{name}` is overloaded",
            "an op has one signature: bind a function with a name of its own",
        )  # fmt: skip
    return next(iter(functions.values()))


def _error(label: str, line: int, message: str, hint: str) -> ConfigError:
    return ConfigError([Problem(label, line, "", message, hint)])


def _declarations(text: str, name: str) -> Iterator[tuple[Sequence[CxxToken], int]]:
    """Statements that declare or define `name` at the top level, and where it is in them.

    Blocks of `extern "C"` and of unnamed namespaces belong to the top level.
    """
    statement: list[CxxToken] = []
    blocks: list[bool] = []
    """Of each open brace, whether what is in it belongs to the top level."""
    depth = 0
    for token in read_cxx(text).tokens:
        depth += (token.text in "([") - (token.text in ")]")
        is_top = all(blocks)
        if token.text == "{" and depth <= 0:
            texts = [part.text for part in statement]
            if is_top and (at := _name_at(statement, name)) is not None:
                yield statement, at
            blocks.append(texts in (["namespace"], ["extern", '"C"']))
            statement = []
        elif token.text == "}" and depth <= 0:
            if blocks:
                blocks.pop()
            statement = []
        elif token.text == ";" and depth <= 0:
            if is_top and (at := _name_at(statement, name)) is not None:
                yield statement, at
            statement = []
        else:
            statement.append(token)


def _name_at(statement: Sequence[CxxToken], name: str) -> int | None:
    """Where the statement declares the function, after a type and before parentheses."""
    depth = 0
    for at, token in enumerate(statement):
        if token.text == "(" and depth == 0 and at >= 2:  # noqa: PLR2004 - type and name
            before, kind = statement[at - 1], statement[at - 2]
            is_type = kind.kind == "name" or kind.text in (">", "*", "&", "&&")
            if before.text == name and is_type and kind.text not in ("return", "new", "typedef"):
                return at - 1
        depth += (token.text in "([") - (token.text in ")]")
        if token.text == "=" and depth == 0:
            return None
    return None


def _read_function(
    source: InlineSource, statement: Sequence[CxxToken], at: int, tensor: str
) -> BoundFunction:
    name = statement[at]
    if statement[0].text == "template":
        raise _error(source.label, name.line, f"`{name.text}` is a template",
                     "bind a function that calls it with types")  # fmt: skip
    end = _closing(statement, at + 1)
    parameters = []
    for number, part in enumerate(_split(statement[at + 2 : end], ",")):
        if [token.text for token in part] != ["void"]:
            parameters.append(_parameter(source, part, number, name.text, tensor))
    # Python has defaults at the end alone.
    required = [at for at, part in enumerate(parameters) if part.default is None]
    for number in range(max(required, default=0)):
        parameters[number] = replace(parameters[number], default=None)
    returned = [token for token in statement[:at] if token.text not in _DROPPED]
    after = [token.text for token in statement[end + 1 :]]
    if returned and returned[0].text == "auto" and "->" in after:
        arrow = end + 1 + after.index("->")
        returned = [token for token in statement[arrow + 1 :] if token.text not in _DROPPED]
    results, is_tuple = _results(source, returned, name, tensor)
    head = "".join(f"{token.text} " for token in statement[:at] if token.text != "static")
    types = ", ".join(
        " ".join(token.text for token in next(iter(_split(part, "=")), part))
        for part in _split(statement[at + 2 : end], ",")
    )
    return BoundFunction(
        name.text, tuple(parameters), results, is_tuple, f"{head}{name.text}({types});"
    )


def _results(
    source: InlineSource, returned: Sequence[CxxToken], name: CxxToken, tensor: str
) -> tuple[tuple[BoundType, ...], bool]:
    if [token.text for token in returned] == ["void"]:
        return (), False
    base, arguments = _template_parts(returned)
    if base in ("tuple", "pair"):
        kinds = [_bound_type(part, tensor) for part in arguments]
    else:
        kinds = [_bound_type(returned, tensor)]
    if any(kind is None for kind in kinds):
        written = _text(returned)
        raise _error(
            source.label, name.line, f"`{name.text}` returns `{written}`, which no op can return",
            f"an op has {KNOWN_TYPES}",
        )  # fmt: skip
    return tuple(kind for kind in kinds if kind is not None), base in ("tuple", "pair")


def _parameter(
    source: InlineSource, tokens: Sequence[CxxToken], number: int, function: str, tensor: str
) -> BoundParameter:
    declared, *defaults = _split(tokens, "=")
    texts = [token.text for token in declared]
    words = [token for token in declared if token.text not in _DROPPED]
    name = f"a{number}"
    is_named = len(words) > 1 and words[-1].kind == "name" and texts[-1] == words[-1].text
    if is_named and texts[-2] != "::" and not _is_type_only(words):
        name, words = words[-1].text, words[:-1]
    kind = _bound_type(words, tensor)
    if kind is None or "*" in texts:
        first = declared[0]
        raise _error(
            source.label, first.line,
            f"`{function}` takes `{' '.join(texts)}`, which no op can take",
            f"an op has {KNOWN_TYPES}",
        )  # fmt: skip
    if kind.schema == "Tensor" and "&" in texts and "const" not in texts:
        kind = BoundType(kind.schema, kind.boxed, kind.cxx, is_mutable=True)
    default = _default(_text(defaults[0]), kind.schema) if defaults else None
    return BoundParameter(f"{name}_" if keyword.iskeyword(name) else name, kind, default)


def _is_type_only(words: Sequence[CxxToken]) -> bool:
    """`unsigned int` has two words and no name."""
    return all(word.text in _INTEGERS | _FLOATS for word in words)


def _default(text: str, schema: str) -> str | None:
    """A default value as schemas write it; None where they cannot."""
    if text in _NOTHING and schema.endswith("?"):
        return "None"
    if text == "{}" and schema.endswith("[]"):
        return "[]"
    if text[:1] == '"' and schema == "str" and "\\" not in text:
        return text
    if text in ("true", "false") and schema == "bool":
        return text.capitalize()
    number = text.replace(" ", "").rstrip("fFlLuU")
    try:
        float(number)
    except ValueError:
        return None
    return number if schema in ("int", "float") else None


def _bound_type(tokens: Sequence[CxxToken], tensor: str) -> BoundType | None:
    """The type; None when no op can have it."""
    words = [token for token in tokens if token.text not in _DROPPED]
    if not words or any(token.text == "*" for token in words):
        return None
    written = _text(words)
    base, arguments = _template_parts(words)
    if base == "optional" and len(arguments) == 1:
        inner = _bound_type(arguments[0], tensor)
        if inner is None or inner.schema.endswith("?"):
            return None
        return BoundType(f"{inner.schema}?", f"std::optional<{inner.boxed}>", written)
    if base in _NAMED_LISTS or (base in _LISTS and arguments):
        return _list_type(base, arguments, written, tensor)
    return None if arguments else _plain_type(base, words, written, tensor)


def _list_type(
    base: str, arguments: Sequence[Sequence[CxxToken]], written: str, tensor: str
) -> BoundType | None:
    if base in _NAMED_LISTS:
        schema = _NAMED_LISTS[base]
        boxed = tensor if schema == "Tensor" else _PLAIN[schema]
        return BoundType(f"{schema}[]", f"std::vector<{boxed}>", written)
    inner = _bound_type(arguments[0], tensor)
    if inner is None or inner.schema.endswith(("?", "[]")):
        return None
    return BoundType(f"{inner.schema}[]", f"std::vector<{inner.boxed}>", written)


def _plain_type(
    base: str, words: Sequence[CxxToken], written: str, tensor: str
) -> BoundType | None:
    if base == "Tensor":
        return BoundType("Tensor", tensor, written)
    if base in _DTYPES:
        return BoundType("ScalarType", _DTYPE, written)
    texts = {word.text for word in words if word.text not in ("std", "::")}
    for schema, names in (("int", _INTEGERS), ("float", _FLOATS), ("bool", {"bool"})):
        if texts <= names:
            return BoundType(schema, _PLAIN[schema], written)
    return BoundType("str", _PLAIN["str"], written) if base in _STRINGS else None


def _template_parts(tokens: Sequence[CxxToken]) -> tuple[str, tuple[Sequence[CxxToken], ...]]:
    """`std::optional<T>` as `optional` and `T`."""
    texts = [token.text for token in tokens]
    if "<" not in texts:
        return texts[-1] if texts else "", ()
    opening = texts.index("<")
    if texts[-1] != ">":
        return "", ()
    return texts[opening - 1], tuple(_split(tokens[opening + 1 : -1], ","))


def _split(tokens: Sequence[CxxToken], sign: str) -> Iterator[Sequence[CxxToken]]:
    """The parts between signs that are in no brackets; nothing of nothing."""
    part: list[CxxToken] = []
    depth = 0
    for token in tokens:
        if token.text == sign and depth == 0:
            yield part
            part = []
            continue
        depth += (token.text in "([{<") - (token.text in ")]}>")
        part.append(token)
    if part:
        yield part


def _closing(tokens: Sequence[CxxToken], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if depth == 0:
            return at
    return len(tokens)


def _text(tokens: Sequence[CxxToken]) -> str:
    """The tokens as a line of C++: words apart, signs not."""
    text = ""
    for token in tokens:
        is_word = bool(text) and (text[-1].isalnum() or text[-1] == "_")
        text += f" {token.text}" if is_word and token.text[0].isalnum() else token.text
    return text


def pybind_functions(source: InlineSource) -> tuple[Mapping[str, tuple[str, str]], str]:
    """What `PYBIND11_MODULE` binds, and the source without it, line by line as it was.

    Returns:
        Python name -> C++ function and docstring; and the text.

    Raises:
        ConfigError: it binds something else than functions by `m.def`; at its line.
    """
    tokens = read_cxx(source.text).tokens
    start = next((at for at, part in enumerate(tokens) if part.text == "PYBIND11_MODULE"), None)
    if start is None:
        return {}, source.text
    opening = next((at for at in range(start, len(tokens)) if tokens[at].text == "{"), len(tokens))
    depth, end = 0, opening
    for end in range(opening, len(tokens)):
        depth += (tokens[end].text == "{") - (tokens[end].text == "}")
        if depth == 0:
            break
    functions: dict[str, tuple[str, str]] = {}
    for statement in _split_statements(tokens[opening + 1 : end]):
        functions.update([_pybind_function(source, statement)])
    lines = source.text.split("\n")
    first, last = tokens[start], tokens[min(end, len(tokens) - 1)]
    rest = lines[last.line - 1][last.column :]
    lines[first.line - 1] = lines[first.line - 1][: first.column - 1]
    for line in range(first.line, last.line):
        lines[line] = ""
    lines[last.line - 1] += rest
    return functions, "\n".join(lines)


def _split_statements(tokens: Sequence[CxxToken]) -> Iterator[Sequence[CxxToken]]:
    """Statements, with `m.def(...).def(...)` and `m.def(...); m.def(...);` alike."""
    return (part for part in _split(tokens, ";") if part)


def _pybind_function(
    source: InlineSource, statement: Sequence[CxxToken]
) -> tuple[str, tuple[str, str]]:
    texts = [token.text for token in statement]
    arguments = list(_split(statement[4:-1], ","))
    is_def = texts[1:4] == [".", "def", "("] and texts[-1:] == [")"] and len(arguments) > 1
    target = [token.text for token in arguments[1]] if is_def else []
    target = target[1:] if target[:1] == ["&"] else target
    if not is_def or arguments[0][0].kind != "string" or len(target) != 1:
        raise _error(
            source.label, statement[0].line, f"`{_text(statement)}` is not a function of an op",
            'bind functions by `m.def("name", &function, "docstring")`',
        )  # fmt: skip
    docs = [part[0].text[1:-1] for part in arguments[2:] if part[0].kind == "string"]
    return arguments[0][0].text[1:-1], (target[0], docs[0] if docs else "")
