"""Tuners of captured libraries: their choices are recorded, and packages answer with these."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.plugins import capture
from kbuild.plugins.capture.cute._launch_tuners import Choices, Winners, replace_caches

FOLDER = Path(capture.__file__).parent


class Kernel:
    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __call__(self, value: int) -> None: ...


class Compiler:
    """Stands for the class of `cute.compile`."""

    def _compile(self, function: Any, *_: Any, **__: Any) -> Any:
        return lambda: function.threads


class Candidate(SimpleNamespace):
    def all_kwargs(self) -> dict[str, Any]:
        return vars(self)


class Tuner:
    def __init__(self, fn: Any, configs: list[Candidate]) -> None:
        self.fn, self.configs, self.cache = fn, configs, {}

    def _bench(self, *args: Any, config: Candidate) -> Any:
        return self.fn(*args, **vars(config))

    def __call__(self, *args: Any) -> Any:
        if args not in self.cache:
            times = [self._bench(*args, config=config) for config in self.configs]
            self.cache[args] = self.configs[times.index(min(times))]
        return self.fn(*args, **vars(self.cache[args]))


COMPILED: dict[int, Any] = {}


def apply(size: int, threads: int) -> Any:
    if threads not in COMPILED:
        options = {"options": "--enable-tvm-ffi"}
        COMPILED[threads] = Compiler()._compile(Kernel(threads), 1, **options)
    return COMPILED[threads]()


def test_of_what_a_tuner_measures_only_its_choice_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    monkeypatch.syspath_prepend(FOLDER / "triton")
    monkeypatch.syspath_prepend(FOLDER / "cute")
    recording = importlib.import_module("compile_recorder")
    monkeypatch.setattr(recording, "device_name", lambda: "H200")
    settings = {"sources": {__file__: "own.py"}, "folder": tmp_path, "options": ()}
    recorder = recording.CompilationRecorder({**settings, "all_configs": False, "run": True})
    recording.record_compilations(recorder, Compiler)
    recording.record_choices(recorder, Tuner)
    tuner = Tuner(apply, [Candidate(threads=threads) for threads in (64, 32, 128)])
    assert [tuner(7), tuner(7)] == [32, 32]
    (file,) = tmp_path.glob("*.jsonl")
    tuned, compiled = map(json.loads, file.read_text().splitlines())
    key = [{"function": f"{__name__}:apply"}, "9.0a", 7]
    assert tuned["tuned"] == {"device": "H200", "key": key, "config": {"threads": 32}}
    assert compiled["constants"]["record"]["callable"]["attributes"] == {"threads": 32}


def row(
    device: str, size: int, threads: int, arch: str = "9.0a", dtype: str = "half"
) -> dict[str, Any]:
    key = ["apply", arch, [size, 8], dtype]
    return {"device": device, "key": key, "config": {"threads": threads}}


@pytest.mark.parametrize(
    ("device", "size", "dtype", "threads"),
    [
        ("H200", 100, "half", 32),
        ("H200", 3000, "half", 64),
        ("H100", 4000, "half", 128),
        pytest.param("B200", 4, "half", 128, id="measured elsewhere"),
        pytest.param("H200", 4096, "float", 256, id="another dtype has no such image"),
    ],
)
def test_a_package_takes_the_candidate_of_the_nearest_recorded_call(
    device: str, size: int, dtype: str, threads: int
) -> None:
    rows = [row("H200", 128, 32), row("H200", 4096, 64), row("H100", 4, 128)]
    # Without a GPU: not measured.
    rows += [row("", 4, 256), row("", 8, 256, dtype="float")]
    rows.append(row("H200", size, 256, "10.0a"))

    def described(value: Any) -> Any:
        return [*value] if isinstance(value, tuple) else getattr(value, "__name__", value)

    class Own(Tuner):
        pass

    def choose(key: Any) -> Any:
        return Winners(rows, described).choose(tuner, "9.0a", device, key)

    replace_caches(Own, lambda _: Choices(choose))
    tuner = Own(apply, [Candidate(threads=threads) for threads in (32, 64, 128, 256)])
    tuner._bench = None  # type: ignore[assignment,method-assign] - nothing is measured
    assert tuner.cache[(size, 8), dtype].threads == threads
    with pytest.raises(RuntimeError, match="no candidate of `apply` was recorded"):
        Winners(rows, described).choose(tuner, "12.0a", device, ())
