"""What a loaded kernel's ops answered, as remarks.

The facts are those of `probes/load_probe.py`. Nothing is known of what an op expects: that it
refuses made-up input is worth a note, that it lies about shapes or ends the process is more.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbuild.checks.base import Severity
from kbuild.checks.readers.probing import Answer

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Remark:
    """One thing to say about the ops of a loaded kernel."""

    severity: Severity
    what: str
    hint: str = ""


def remarks_on(answer: Answer, identifier: str) -> Iterator[Remark]:
    """Everything to say about a kernel that was loaded under that id."""
    ops: Mapping[str, Facts] = answer.facts.get("ops", {})
    yield from _registered(answer.facts, identifier)
    for name, about in ops.items():
        yield from _shapes(name, about)
    left_out = [said for name, about in ops.items() for said in _left_out(name, about)]
    if left_out:
        yield Remark("info", f"not every op could be tried: {'; '.join(left_out)}")
    if answer.returncode:
        what = f"works, but the process {end_of(answer.returncode)} when it was over"
        yield Remark("warning", what, "look at destructors of static objects")


def differences(alone: Answer, beside: Answer) -> Iterator[Remark]:
    """What changed for a kernel with another version of it in the same process."""
    disturbed = beside.facts.get("disturbed", ())
    hint = "they share symbols or registrations: export nothing but the module's entry"
    if disturbed:
        yield Remark("error", f"changes what the other version's {_list(disturbed)} answers", hint)
    before, after = _digests(alone), _digests(beside)
    changed = [name for name in before if name in after and before[name] != after[name]]
    if changed:
        yield Remark("error", f"{_list(changed)} answers differently beside another version", hint)


def end_of(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode >= 0:
        return f"ended with exit code {returncode}"
    try:
        return f"ended with {signal.Signals(-returncode).name}"
    except ValueError:
        return f"ended with signal {-returncode}"


def _registered(facts: Facts, identifier: str) -> Iterator[Remark]:
    if strays := facts.get("strays"):
        what = f"its library registers {_list(strays)} outside its namespace `{identifier}`"
        yield Remark("error", what, "open `TORCH_EXTENSION_NAME` with `TORCH_LIBRARY_EXPAND`")
    if foreign := facts.get("foreign"):
        what = f"the namespaces {_list(foreign)} appeared while it was imported"
        yield Remark("warning", what, "register its ops through `add_op_namespace_prefix`")
    for name, about in facts.get("ops", {}).items():
        if about["schema"] is None:
            what = f"`{name}` has kernels, but is not defined"
            yield Remark("error", what, f'`ops.def("{name}(...) -> ...")` in the binding')
        elif not about["kernel"]:
            what = f"`{name}` has no kernel for the device that the variant is for"
            yield Remark("warning", what, "`TORCH_LIBRARY_IMPL_EXPAND` registers one")


def _shapes(name: str, about: Facts) -> Iterator[Remark]:
    """The fake kernel answers with the shapes of the real one."""
    real, fake = about.get("call", {}), about.get("fake", {})
    given = (real.get("given"), fake.get("given"))
    shapes = (real.get("shapes"), fake.get("shapes"))
    is_known = given[0] == given[1] is not None and "?" not in str(shapes[1])
    if is_known and shapes[0] != shapes[1]:
        what = f"`{name}` answers {_tensors(shapes[0])}, its fake kernel {_tensors(shapes[1])}"
        yield Remark("warning", what, "`torch.compile` relies on the fake kernel")


def _left_out(name: str, about: Facts) -> Iterator[str]:
    for kind, words in (("call", ""), ("fake", " (its fake kernel)")):
        answer = about.get(kind, {})
        reason = answer.get("skipped") or answer.get("refused")
        if reason:
            yield f"`{name}`{words}: {reason}"


def _digests(answer: Answer) -> dict[str, str]:
    ops = answer.facts.get("ops", {})
    calls = {name: about.get("call", {}) for name, about in ops.items()}
    return {name: call["digest"] for name, call in calls.items() if "digest" in call}


def _tensors(shapes: Any) -> str:
    return ", ".join(f"{kind.removeprefix('torch.')}{list(shape)}" for kind, *shape in shapes)


def _list(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)
