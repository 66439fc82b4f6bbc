"""The log of a run's units: one JSON object per line, appended by every launcher."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from json.encoder import encode_basestring_ascii as _quoted
else:
    try:
        from _json import encode_basestring_ascii as _quoted  # json itself loads re
    except ImportError:
        from json.encoder import encode_basestring_ascii as _quoted

Value = str | int | float | bool


def append(path: str, record: dict[str, Value]) -> None:
    """Add one line; lines of concurrent writers do not mix."""
    members = ", ".join(f"{_quoted(name)}: {_text(value)}" for name, value in record.items())
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, f"{{{members}}}\n".encode())
    finally:
        os.close(handle)


def _text(value: Value) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
