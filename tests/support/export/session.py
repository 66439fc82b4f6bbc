"""The head of scripts that call exported functions; see `exported.run`."""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import c_double, c_float, c_int32, c_int64, c_uint64  # noqa: F401

fake = ctypes.CDLL(sys.argv[2]) if sys.argv[2].count(".so") else None
lib = ctypes.CDLL(sys.argv[1])


def sizes(*of: int) -> None:
    """How many bytes each argument of the next launch has."""
    fake.fake_sizes((ctypes.c_int * len(of))(*of), len(of))


def report() -> dict:
    """What the driver has seen."""
    text = ctypes.create_string_buffer(4096)
    fake.fake_report(text, len(text))
    return json.loads(text.value)


def say(*what) -> None:
    """The script's answer."""
    sys.stdout.write(json.dumps(what))
