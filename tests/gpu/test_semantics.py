"""A short run of the fuzz of semantics, see `semantics/run.py`, and of what it compares with.

`KBUILD_TEST_SEMANTICS=FOLDER` has the projects as `kbuild build` left them: `FOLDER/triton/build`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).parent / "semantics"
PROJECTS = Path(os.environ.get("KBUILD_TEST_SEMANTICS", FOLDER / "projects"))


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("language", ["triton", "tilelang", "cute", "cutile", "ninetoothed"])
def test_ops_do_what_their_languages_do(language: str, tmp_path: Path) -> None:
    if not (PROJECTS / language / "build").is_dir():
        pytest.skip(f"{PROJECTS / language} is not built")
    answer = tmp_path / "answer.json"
    more = ("--cases", "20", "--no-huge", "--language", language, "--folder", str(PROJECTS))
    command = (sys.executable, str(FOLDER / "run.py"), *more, "--save", str(answer))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert answer.is_file(), done.stderr
    found = json.loads(answer.read_text())
    assert (found["differ"], found["crashed"]) == (0, []), done.stdout
    assert found["comparisons"] > 0


@pytest.fixture
def fuzz(monkeypatch):
    """Its modules, on the CPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    from tests.gpu.semantics import drawing, run
    from tests.gpu.semantics.calls import Call

    return run, drawing, Call


def doubled(x):
    return x * 2


def overflowing(x):
    x.untyped_storage()[0] = 0 if x.untyped_storage()[0] else 1
    return x * 2


def halting(x):
    raise RuntimeError("`op`: no")


def dirty(x):
    x += 1
    raise RuntimeError("`op`: no")


@pytest.mark.parametrize(
    ("op", "outcome", "words"),
    [
        (doubled, "equal", ""),
        (lambda x: x * 2 + 0.5, "differs", "the result: "),
        (lambda x: (x * 2)[:-1], "differs", "the result: "),
        (lambda _: None, "differs", "True and False results"),
        (overflowing, "differs", "an argument's memory: 1 bytes, the first is byte 0 of"),
        (halting, "refused", "`op`: no"),
        (dirty, "differs", "refused (`op`: no), but changed"),
    ],
)
def test_what_differs_is_seen(fuzz, op, outcome, words) -> None:
    run, drawing, call = fuzz
    x = drawing.Draw("seed", "cpu").tensor(5, 7, dtype=torch.float32, layout="any")
    found, why = run.attempt(op, call((x,), doubled), side=False, times=1)
    assert found == outcome
    assert words in why


def test_a_copy_shares_what_was_shared(fuzz) -> None:
    _, drawing, _ = fuzz
    draw = drawing.Draw("seed", "cpu")
    whole = draw.tensor(20, dtype=torch.int32, layout="offset")
    first, second, number = drawing.copied((whole[::2], whole[1::2], 3))
    assert number == 3
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
    assert torch.equal(first, whole[::2])
    assert (second.stride(), second.storage_offset()) == ((2,), whole.storage_offset() + 1)


@pytest.mark.parametrize("layout", ["plain", "offset", "any", "expanded"])
def test_tensors_keep_to_their_memory(fuzz, layout) -> None:
    _, drawing, _ = fuzz
    for seed in range(50):
        draw = drawing.Draw(str(seed), "cpu")
        made = draw.tensor(*draw.shape(), dtype=torch.float32, layout=layout, values=draw.normal)
        assert made.untyped_storage().nbytes() >= 4 * drawing.GUARD
        assert made.clone().shape == made.shape
