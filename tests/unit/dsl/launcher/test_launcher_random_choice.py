"""Random candidates, images, tables and calls: C++ and `row_choice` agree."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from kbuild.dsl.candidates import closest_target
from kbuild.dsl.launcher.resolved_kernel import is_compiled_for
from kbuild.ops.tuned_tables import TunedRow, TunedTable, merge_tables
from tests.support.launcher.launched import Kernel, extension, files_of, launched, ops_of
from tests.support.launcher.row_choice import OpCall, choose_candidate, rows_for_call

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]
OPS, CALLS = 10, 1500
SEED = 20
TARGETS = ("sm_80", "sm_90a", "compute_80")
DTYPES = ("float16", "float32")


@dataclass(frozen=True)
class Device:
    index: int
    name: str
    arch: str
    shared: int


DEVICES = (
    Device(0, "Fake 90", "sm_90", 232448),
    Device(1, "Fake 80", "sm_80", 166912),
    Device(2, "Fake 86", "sm_86", 101376),
    Device(6, "Fake 120", "sm_120", 101376),
    Device(8, "Fake other", "sm_90", 232448),
    Device(9, "Fake small", "sm_90", 101376),
)
HEAD = """\
[kernel.k]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
"""
KEYS = ("N", "M", "numel(x)", "M - 20")
WHENS = ("N > 40", "N <= 90", "M % 2 == 0", "N * BLOCK > 100")


def section(chance: random.Random) -> str:
    return HEAD + "".join(op_text(chance, f"r{number}") for number in range(OPS))


def op_text(chance: random.Random, name: str) -> str:
    keys = chance.sample(KEYS, chance.choice([0, 1, 1, 2, 3]))
    configs = ",\n".join(config(chance, block) for block in range(1, chance.randint(3, 7)))
    return f"""
[[kernel.k.op]]
schema = "{name}(Tensor x) -> Tensor"
shapes = {{ x = ["M", "N"], out = "x" }}
dtypes = {list(DTYPES)}
grid = ["M"]
key = {keys}
configs = [
{configs}
]
"""


def config(chance: random.Random, block: int) -> str:
    words = [f"BLOCK = {block}", f"num_warps = {chance.choice([1, 2, 4])}"]
    if chance.random() < 0.4:
        words.append(f'when = "{chance.choice(WHENS)}"')
    if chance.random() < 0.2:
        words.append(f'archs = ["{chance.choice(["8.0", "9.0"])}"]')
    if chance.random() < 0.3:
        words.append("aligned = true")
    return f"    {{ {', '.join(words)} }}"


def made(chance: random.Random) -> list[Any]:
    """The ops; some images need much memory, and one in six is missing."""
    kernels = {}
    ops = ops_of(section(chance))
    for op in ops:
        needs = {block: chance.choice([0, 90_000, 120_000, 200_000]) for block in range(1, 8)}
        kernels[op.name] = Kernel(
            ("x", "out", "BLOCK!"),
            lambda unit, needs=needs: {"shared": needs[dict(unit.constants)["BLOCK"]]},
        )
    there = [launched(op, kernels, TARGETS, lambda _: chance.random() < 5 / 6) for op in ops]
    assert all(one.launches[0].compiled for one in there)
    return there


def tables(chance: random.Random, ops: list[Any]) -> tuple[TunedTable, ...]:
    measured = [("Fake 90", "sm_90"), ("Fake 80", "sm_80"), ("Elsewhere", "sm_90"),
                ("Nowhere", "sm_86")]  # fmt: skip
    return merge_tables(
        TunedTable(name, arch, tuple(row(chance, op.spec) for op in ops for _ in range(6)))
        for name, arch in measured
        if chance.random() < 0.9
    )


def row(chance: random.Random, op: Any) -> TunedRow:
    """Also of candidates that are gone, and with keys of another length."""
    candidate = chance.choice(op.launches[0].candidates)
    length = len(op.key) if chance.random() < 0.9 else len(op.key) + 1
    key = tuple(chance.choice([-3, 0, 1, 8, 33, 64, 100, 1000]) for _ in range(length))
    options = candidate.options if chance.random() < 0.85 else (("num_warps", 32),)
    dtype = chance.choice(DTYPES)
    dtypes = (("x", dtype), ("out", dtype))
    return TunedRow("k", op.name, 0, dtypes, key, candidate.constants, options, 1.0, 2.0)


@pytest.fixture(scope="module")
def world(driver, tmp_path_factory):
    chance = random.Random(SEED)  # noqa: S311 - the same each time
    ops = made(chance)
    known = tables(chance, ops)
    files = files_of("k", ops, known, module=True)
    path = extension(files, tmp_path_factory.mktemp("random"), "_random_tests", "-O0")
    torch.ops.load_library(str(path))
    yield chance, ops, known
    driver.library.fake_forget()


def expected(op: Any, known: tuple[TunedTable, ...], call: OpCall, device: Device) -> int | None:
    """The index of the candidate, by the reference."""
    launch = op.launches[0]
    candidates = launch.launch.candidates

    def image(index: int) -> Any:
        """The target of the image that the candidate would take on this device."""
        one = candidates[index]
        fast = call.aligned or one.aligned  # whether the call may take it is `choose`'s to say
        own = [
            each
            for each in launch.compiled
            if is_compiled_for(one, each.unit)
            and dict(each.unit.dtypes) == dict(call.dtypes)
            and each.image.shared <= device.shared
        ]
        by_kind = {
            kind: closest_target(
                device.arch, [e.unit.target for e in own if e.unit.aligned is kind]
            )
            for kind in (True, False)
        }
        return (by_kind[True] if fast else None) or by_kind[False]

    rows = rows_for_call(known, "k", op.spec.name, 0, call)
    if any(one.archs for one in candidates):  # what has machine code goes before PTX
        found = choose_candidate(
            candidates, rows, call, lambda at: (t := image(at)) is not None and t.kind != "ptx"
        )
        if found is not None:
            return found
    return choose_candidate(candidates, rows, call, lambda at: image(at) is not None)


def test_the_launcher_and_the_reference_agree(world, driver):
    chance, ops, known = world
    seen: Counter[str] = Counter()
    for _ in range(CALLS):
        op, device, dtype = chance.choice(ops), chance.choice(DEVICES), chance.choice(DTYPES)
        m, n = (
            chance.choice([1, 2, 7, 20, 64, 333]),
            chance.choice([1, 8, 33, 41, 64, 90, 91, 1000]),
        )
        offset = chance.choice([0, 0, 1])
        memory = torch.zeros(m * n + 1, dtype=getattr(torch, dtype))
        driver.place(memory, device.index)
        x = memory[offset : m * n + offset].view(m, n)
        values = {"N": n, "M": m, "numel(x)": m * n}
        key = tuple(one.evaluate(values) for one in op.spec.key)
        dtypes = {"x": dtype, "out": dtype}
        call = OpCall(device.name, device.arch, dtypes, key, values, aligned=offset == 0)
        wanted = expected(op, known, call, device)
        driver.said()
        run = getattr(torch.ops._random_tests, op.spec.name)
        if wanted is None:
            with pytest.raises(RuntimeError, match=r"no image|no candidate|needs|aligned"):
                run(x)
            seen["refused"] += 1
            continue
        run(x)
        (record,) = driver.launches()
        block = next(w for w in record.image.split() if w.startswith("BLOCK=")).split("=")[1]
        candidates = op.launches[0].launch.candidates
        assert int(block) == dict(candidates[wanted].constants)["BLOCK"], (op.spec.name, call)
        tuned = rows_for_call(known, "k", op.spec.name, 0, call)
        seen["tuned" if tuned else "by default"] += 1
        seen["aligned alone"] += candidates[wanted].aligned
        seen["not aligned"] += offset
        seen["PTX"] += "compute_" in record.image
    assert all(seen[name] > CALLS / 100 for name in ("refused", "tuned", "by default")), seen
    assert all(seen[name] > CALLS / 100 for name in ("aligned alone", "not aligned", "PTX")), seen
