"""Random expressions and values, and Python's own word on them."""

from __future__ import annotations

import ast

from hypothesis import strategies as st

NAMES = ("a", "b", "M", "N")
LIMITS = (-(2**63), -(2**63) + 1, -(2**31), -2, -1, 0, 1, 2, 3, 16, 2**31, 2**62, 2**63 - 1)
FUNCTIONS = {
    "cdiv": lambda a, b: -(-a // b),
    "next_pow2": lambda a: 1 << max(a - 1, 0).bit_length(),
    "min": min,
    "max": max,
}


def values():
    number = st.sampled_from(LIMITS) | st.integers(-100, 100) | st.integers(-(2**63), 2**63 - 1)
    return st.fixed_dictionaries(dict.fromkeys(NAMES, number))


def expressions():
    """Texts; the parentheses are random, so that precedence is met as well."""
    leaf = (
        st.sampled_from(NAMES) | st.integers(0, 300).map(str) | st.sampled_from(["True", "False"])
    )
    return st.recursive(leaf, _larger, max_leaves=8)


def _larger(part):
    binary = st.sampled_from(
        ["+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    )
    return st.one_of(
        st.tuples(part, binary, part).map(" ".join),
        st.tuples(part, binary, part).map(lambda parts: f"({' '.join(parts)})"),
        part.map(lambda inner: f"-{inner}" if inner[0] != "-" else f"-({inner})"),
        part.map(lambda inner: f"(not {inner})"),
        st.tuples(part, part, part).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(part, part).map(lambda p: f"cdiv({p[0]}, {p[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), part, part, part).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]}, {p[3]})"
        ),
        part.map(lambda inner: f"next_pow2({inner})"),
    )


def evaluated_by_python(text, numbers):
    """The value by Python's own parser and operators, None when it is refused."""
    try:
        return _value(ast.parse(text, mode="eval").body, numbers)
    except (ZeroDivisionError, OverflowError):
        return None


def _value(node, numbers):  # noqa: C901
    match node:
        case ast.Constant():
            value = int(node.value)
        case ast.Name():
            value = numbers[node.id]
        case ast.BoolOp():
            whole = all if isinstance(node.op, ast.And) else any
            value = int(whole(_value(part, numbers) for part in node.values))
        case ast.IfExp():
            value = _value(node.body if _value(node.test, numbers) else node.orelse, numbers)
        case ast.Call():
            arguments = [_value(argument, numbers) for argument in node.args]
            value = FUNCTIONS[node.func.id](*arguments)
        case ast.Compare():
            value = _compared(node, numbers)
        case ast.UnaryOp(op=ast.Not()):
            value = int(not _value(node.operand, numbers))
        case ast.UnaryOp(operand=ast.Constant(value=constant)):
            value = -int(constant)
        case ast.UnaryOp():
            value = -_value(node.operand, numbers)
        case ast.BinOp():
            value = _binary(node, numbers)
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return value


def _binary(node, numbers):
    left, right = _value(node.left, numbers), _value(node.right, numbers)
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right


def _compared(node, numbers):
    left = _value(node.left, numbers)
    for operator, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, numbers)
        names = {"Eq": "==", "NotEq": "!=", "Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">="}
        symbol = names[type(operator).__name__]
        holds = {
            "==": left == right,
            "!=": left != right,
            "<": left < right,
            "<=": left <= right,
            ">": left > right,
            ">=": left >= right,
        }
        if not holds[symbol]:
            return 0
        left = right
    return 1
