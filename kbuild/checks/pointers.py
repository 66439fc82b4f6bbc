"""No pointer into a temporary tensor is kept: the tensor is gone at the end of its statement.

In the stable ABI, what are methods of `at::Tensor` are functions that return a tensor, so
`float *p = torch::stable::contiguous(x).data_ptr()` is easily written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kbuild.checks.base import Finding
from kbuild.sources.cxx import CxxToken, closing_sign, tokens_of

_POINTERS = ("data_ptr", "mutable_data_ptr", "const_data_ptr")
_MAKERS = frozenset(
    (
        *("contiguous", "clone", "to", "empty", "empty_like", "full", "new_empty", "new_zeros"),
        *("zeros", "zeros_like", "ones", "pad", "sum", "amax", "matmul", "subtract", "sort"),
        *("floor_divide", "index_select", "cat", "stack", "add", "mul", "div", "to_dtype"),
    )
)
"""Functions whose result has memory of its own. Those that return views are not among them."""
_CASTS = ("static_cast", "reinterpret_cast", "const_cast")
_HINT = "keep the tensor in a variable as long as the pointer is used"


def pointer_findings(texts: Mapping[str, str]) -> Iterator[Finding]:
    """Warnings on sources for the stable ABI, by path; `where` is the path with the line."""
    for path, text in texts.items():
        if "data_ptr" not in text or "stable" not in text:
            continue
        tokens = tokens_of(text)
        for at, token in enumerate(tokens):
            if token.text in _POINTERS and (maker := _temporary(tokens, at)):
                what = (
                    f"`{token.text}` of the temporary that `{maker}` returns is kept, which ends "
                    "with the statement"
                )
                yield Finding("pointers", "warning", f"{path}:{token.line}", what, _HINT)


def _temporary(tokens: Sequence[CxxToken], at: int) -> str:
    """The function whose result is asked for a pointer that is kept; empty for all else."""
    texts = [token.text for token in tokens[max(0, at - 200) : at]]
    if texts[-2:] != [")", "."]:
        return ""
    opening = _opening(texts, len(texts) - 2)
    maker = texts[opening - 1] if opening > 0 else ""
    if maker not in _MAKERS:
        return ""
    begin = _chain_start(texts, opening - 1)
    end = _pointer_end(tokens, at)
    return maker if end < len(tokens) and _is_kept(texts[:begin], tokens, end) else ""


def _opening(texts: Sequence[str], closing: int, signs: str = "()") -> int:
    """The index where the sign at a place was opened; -1 where it is not seen."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += (texts[at] == signs[1]) - (texts[at] == signs[0])
        if depth == 0:
            return at
    return -1


def _chain_start(texts: Sequence[str], name: int) -> int:
    """The start of `ns::f(x)` or `x.f(y)`, called by the name at a place."""
    at = name
    while at >= 2 and texts[at - 1] in ("::", ".", "->"):  # noqa: PLR2004 - a sign and a name
        if not (texts[at - 2] == ")" or texts[at - 2].isidentifier()):
            break
        at -= 2
        if texts[at] == ")":
            at = _opening(texts, at) - 1
    return at - 1 if at >= 1 and texts[at - 1] == "::" else max(at, 0)


def _pointer_end(tokens: Sequence[CxxToken], at: int) -> int:
    """The index behind `data_ptr<float>()`."""
    opening = at + 1
    if opening < len(tokens) and tokens[opening].text == "<":
        opening = closing_sign(tokens, opening, "<>") + 1
    return closing_sign(tokens, opening) + 1 if opening < len(tokens) else len(tokens)


def _is_kept(before: Sequence[str], tokens: Sequence[CxxToken], end: int) -> bool:
    """True when the pointer itself is assigned, put into an object or returned."""
    before = list(before)
    # Out of casts: `static_cast<float *>(`, `(float *)`.
    while before:
        if before[-1] == "(" and tokens[end].text == ")":
            inner = before[:-1]
            if inner[-1:] == [">"] and (opening := _opening(inner, len(inner) - 1, "<>")) > 0:
                if inner[opening - 1] in _CASTS:
                    before, end = inner[: opening - 1], end + 1
                    continue
            elif inner and inner[-1] in ("=", "(", "return", ","):
                before, end = inner, end + 1
                continue
        elif before[-1] == ")" and before[-2:-1] == ["*"]:
            before = before[: _opening(before, len(before) - 1)]
            continue
        break
    if not before or end >= len(tokens) or tokens[end].text not in (";", ",", "}"):
        return False
    return before[-1] in ("=", "return", "{") or (before[-1] == "," and _is_in_braces(before))


def _is_in_braces(before: Sequence[str]) -> bool:
    """True when the innermost open bracket is that of a list of initial values."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += (before[at] in ")]}") - (before[at] in "([{")
        if depth < 0:
            return before[at] == "{"
        if before[at] == ";":
            return False
    return False
