"""Recorded calls of `cute.compile` as ops: each op returns the function that was compiled."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence

from kbuild.plugins.capture.launches import CapturedFunction, LaunchOps

_FUNCTION = "compiled"
"""Name of the function in the worker; its constant `record` is the call."""


def compiled_ops(kernel: str, functions: Sequence[CapturedFunction]) -> Iterator[LaunchOps]:
    """Ops for all recorded calls, by source: the candidates of an op are the calls.

    The op has a tensor for the device alone.
    """
    ordered = sorted(functions, key=lambda function: (function.source, function.name))
    for source, group in itertools.groupby(ordered, key=lambda function: function.source):
        ops, tables = [], []
        for function in group:
            table = {"source": source, "function": function.name, "tuned": function.tuned}
            if not function.launches:
                tables.append({**table, "launches": []})
                continue
            records = [
                (json.dumps(launch.constants["record"]), sorted(launch.archs))
                for launch in function.launches
            ]
            name = re.sub(r"\W", "_", f"launch_{kernel}_{source}_{function.name}")
            configs = [
                {"record": record, "archs": archs, "when": f"launch_form == {at}"}
                for at, (record, archs) in enumerate(records)
            ]
            schema = f"{name}(Tensor(a!) device, int launch_form) -> ()"
            dtypes = {"device": ["uint8"]}
            ops.append(
                {"schema": schema, "function": _FUNCTION, "dtypes": dtypes, "configs": configs}
            )
            launches = [
                {"record": record, "op": name, "form": at} for at, (record, _) in enumerate(records)
            ]
            tables.append({**table, "launches": launches})
        yield LaunchOps(source, tuple(ops), tuple(tables))
