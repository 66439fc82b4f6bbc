"""`scripts/fuzz.py`: its targets take what they start from, and it sees what it looks for."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import fuzz  # noqa: E402
from fuzzing.common import BYTES, JSON, TEXT, Target  # noqa: E402
from fuzzing.mutations import mutate_elf, mutate_json, mutate_json_lines, mutate_toml  # noqa: E402
from fuzzing.targets import TARGETS  # noqa: E402

from kbuild.system.errors import DamagedFileError  # noqa: E402


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_target_takes_its_first_input(target: Target, tmp_path: Path) -> None:
    """A reader that refuses it would be attacked at its door only."""
    if target.name == "bundle":
        pytest.importorskip("sigstore")
    target.run(target.seeds()[0], tmp_path)


@pytest.mark.parametrize("mutations", [JSON, TEXT, BYTES, (mutate_toml,), (mutate_elf,)])
def test_an_input_follows_from_seed_and_number(mutations) -> None:
    seeds = [b'a = "b"\n']
    target = Target("x", lambda *_: None, lambda: seeds, mutations)
    first = [fuzz.input_of(target, seeds, 7, number) for number in range(50)]
    assert first == [fuzz.input_of(target, seeds, 7, number) for number in range(50)]
    assert first[0] == seeds[0]
    assert len(set(first)) > 25
    assert first[1:] != [fuzz.input_of(target, seeds, 8, number) for number in range(1, 50)]


@pytest.mark.parametrize("mutation", [mutate_json, mutate_json_lines])
def test_documents_are_changed_in_their_own_form(mutation) -> None:
    target = Target("x", lambda *_: None, list, (mutation,))
    seed = b'{"a": [1, {"b": "c"}], "d": null}'
    made = {fuzz.input_of(target, [seed], 1, number) for number in range(1, 200)}
    assert len(made) > 50
    assert any(b"[[[[" in data or b'{"a":{"a":' in data for data in made)


def _raising(error: BaseException):
    def run(_data: bytes, _folder: Path) -> None:
        raise error

    return run


def _wrapped(_data: bytes, _folder: Path) -> None:
    raise DamagedFileError("asks for much") from MemoryError()


def _endless(_data: bytes, _folder: Path) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:  # noqa: BLE001, S110 - what a reader does that catches everything
            pass


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (_raising(TypeError("x")), ["TypeError"]),
        (_raising(RecursionError()), ["RecursionError"]),
        (_raising(DamagedFileError("x")), []),
        (_raising(ValueError("x")), []),
        (_wrapped, ["memory"]),
        (_endless, ["hang"]),
        (lambda *_: time.sleep(9), ["hang"]),
        (lambda *_: None, []),
    ],
    ids=["foreign", "recursion", "own", "listed", "memory", "hang", "wait", "fine"],
)
def test_faults(run, what, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fuzz, "LIMIT_SECONDS", 0.1)
    clocks = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(clock, fuzz._ring) for clock in clocks]
    try:
        bench = fuzz.TargetRunner(tmp_path, 0)
        target = Target("x", run, lambda: [b"a"], BYTES, raises=(ValueError,))
        for number in range(2):
            bench.run(target, number)
    finally:
        for clock, handler in zip(clocks, before, strict=True):
            signal.signal(clock, handler)
    assert bench.tally.executions["x"] == 2
    assert [fault.what for fault in bench.tally.faults.values()] == what


def test_every_execution_has_an_empty_folder(tmp_path) -> None:
    seen = []

    def run(_data: bytes, folder: Path) -> None:
        assert not list(folder.iterdir())
        seen.append(folder)
        if len(seen) == 2:
            (folder / "file").touch()

    bench = fuzz.TargetRunner(tmp_path, 0)
    for number in range(3):
        bench.run(Target("x", run, lambda: [b"a"], BYTES), number)
    assert not bench.tally.faults
    assert seen[0] == seen[1] != seen[2]
