"""`kbuild capture` with a Triton that has nothing but what is recorded."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from kbuild.plugins.capture.cli import CaptureProgress
from kbuild.plugins.capture.programs import PATH_WALKED
from kbuild.system.processes import LocalRunner
from kbuild.system.ui import Ui

BUILD = """\
[general]
name = "demo"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
stable-abi = "2.11"

[kernel.ops]
backend = "cuda"
language = "triton"
toolchain = "triton==3.9.0"
src = ["my_ops/**/*.py"]

[[kernel.ops.capture]]
launches = ["my_ops.*"]
"""
JIT = """
import functools


class JITFunction:
    def __init__(self, fn):
        self.fn, self.arg_names = fn, list(fn.__code__.co_varnames[: fn.__code__.co_argcount])

    def __getitem__(self, grid):
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args, grid, warmup, **kwargs):
        return "launched"


class dtype:
    def __str__(self):
        return "fp16"
"""
TUNER = """
class Config:
    def __init__(self, **kwargs):
        self.kwargs, self.pre_hook = kwargs, None

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": 4, "num_ctas": 1}


class Autotuner:
    def __init__(self, fn, configs, key):
        self.fn, self.configs, self.keys, self.arg_names = fn, configs, key, fn.arg_names

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def prune_configs(self, kwargs):
        return self.configs

    def _bench(self, *args, config, **kwargs):
        self.fn.run(*args, **kwargs, **config.all_kwargs())

    def run(self, *args, **kwargs):
        for config in self.configs:
            self._bench(*args, config=config, **kwargs)
        self.best_config = self.configs[-1]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())
"""
KERNELS = """
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction


def k(x, b, n, wide, eps, flag, BLOCK: "tl.constexpr", ACT: "tl.constexpr" = "none"):
    return other(x)


def other(x):
    return x


def tuned(x, n, BLOCK: "tl.constexpr"):
    pass


k = JITFunction(k)
tuned = Autotuner(JITFunction(tuned), [Config(BLOCK=size) for size in (32, 64, 128)], ["n"])


def outer():
    def inner(x):
        pass

    return JITFunction(inner)
"""
SCRIPT = """
import sys
sys.path[:0] = [{fakes!r}, "."]
from triton.runtime.jit import dtype
from my_ops.kernels import k, outer, tuned


class Tensor:
    dtype = "torch.float16"

    def data_ptr(self):
        return 0


x = Tensor()
assert k[(1,)](x, None, 48, 2**40, 1.0, True, BLOCK=64, num_warps=8, num_ctas=1) == "launched"
k[(1,)](x, None, 48, 2**40, 1.0, True, BLOCK=64, num_warps=8)
k[(1,)](x, None, 1, 2**40, 1.0, True, BLOCK=64, num_warps=8)
k[(1,)](x, x, 50, 2**40, 1.0, True, BLOCK=64, ACT=dtype())
{more}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    files = {
        "build.toml": BUILD,
        "my_ops/kernels.py": KERNELS,
        "torch-ext/demo/__init__.py": "from .my_ops import kernels\n",
    }
    fakes = {
        "triton/__init__.py": "",
        "triton/runtime/__init__.py": "",
        "triton/runtime/jit.py": JIT,
        "triton/runtime/autotuner.py": TUNER,
        "torch.py": "class cuda:\n    get_device_name = staticmethod(lambda: 'NVIDIA H100')\n",
    }
    places = {root / name: text for name, text in files.items()}
    places |= {tmp_path / "fakes" / name: text for name, text in fakes.items()}
    for path, text in places.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def kbuild(kbuild, tmp_path: Path):
    """Runs commands on the project."""
    return lambda name, *args: kbuild(name, str(tmp_path / "project"), *args)


@pytest.fixture
def record(project: Path, kbuild):
    def run(more: str = "", *options: str):
        script = project.parent / "script.py"
        script.write_text(SCRIPT.format(fakes=str(project.parent / "fakes"), more=more))
        return kbuild("capture", "--record", *options, "--", sys.executable, str(script))

    return run


def captured(project: Path) -> dict[str, list[dict[str, object]]]:
    data = json.loads((project / "captured" / "ops.json").read_text())
    return {each["function"]: each["launches"] for each in data["functions"]}


def test_launches_are_recorded_once(project: Path, record) -> None:
    answer = record()
    assert answer.code == 0
    assert "captured/ops.json: 2 launches of 1 kernels, 2 new" in answer.err
    with_b, without = captured(project)["k"]
    kinds = {"n": "int", "wide": "int64", "eps": "float", "flag": "bool"}
    assert without == {
        "arguments": {"x": "*float16", "b": "none", **kinds},
        "constants": {"BLOCK": 64, "ACT": {"string": "none"}},
        "options": {"num_warps": 8},
        "assumptions": [{"divisible": ["n", "wide"]}, {"divisible": ["wide"], "ones": ["n"]}],
    }
    assert with_b["constants"] == {"BLOCK": 64, "ACT": {"dtype": "float16"}}
    assert "0 new" in record().err


def test_the_first_and_the_fastest_candidate_are_recorded(project: Path, record) -> None:
    record("tuned[(1,)](x, 16)")
    blocks = [launch["constants"]["BLOCK"] for launch in captured(project)["tuned"]]
    assert blocks == [128, 32]
    data = json.loads((project / "captured" / "ops.json").read_text())
    assert data["functions"][1]["tuned"] == [
        {"device": "NVIDIA H100", "key": [16], "config": {"BLOCK": 128, "num_warps": 4}}
    ]
    record("tuned[(1,)](x, 16)", "--all-configs")
    assert len(captured(project)["tuned"]) == 3


def test_kernels_need_not_run(project: Path, record, kbuild) -> None:
    jit = project.parent / "fakes" / "triton" / "runtime" / "jit.py"
    jit.write_text(jit.read_text().replace('return "launched"', "raise RuntimeError('no GPU')"))
    calls = "tuned[(1,)](x, 16)\nassert tuned.best_config.kwargs == {'BLOCK': 32}\n"
    calls += "k[(1,)](x, None, 1, 1, 1.0, True, BLOCK=1)\n"
    assert "RuntimeError: no GPU" in record(calls).err
    script = project.parent / "script.py"
    lines = [line for line in script.read_text().splitlines() if not line.startswith("assert k")]
    script.write_text("\n".join(lines))
    answer = kbuild("capture", "--record", "--no-run", "--", sys.executable, str(script))
    assert answer.code == 0
    assert "4 launches of 2 kernels" in answer.err
    assert [each["constants"]["BLOCK"] for each in captured(project)["tuned"]] == [32]


def test_what_cannot_be_compiled_is_named(record) -> None:
    answer = record("outer()[(1,)](x)\nk[(1,)](x, x, 1, 1, 1.0, object(), BLOCK=1)")
    assert "`inner` of my_ops/kernels.py is defined inside of `outer.<locals>`" in answer.err
    assert "`k` of my_ops/kernels.py has the argument `flag`, a object" in answer.err
    assert answer.code == 0


def test_a_command_that_fails_or_launches_nothing(project: Path, record, kbuild) -> None:
    answer = record("raise SystemExit(3)")
    assert answer.code == 6
    assert "failed with exit code 3" in answer.err
    answer = kbuild("capture", "--record", "--", sys.executable, "-c", "pass")
    assert "launched no kernel of kernel.ops" in answer.err
    assert not (project / "captured").exists()
    assert "--record needs a command" in kbuild("capture", "--record").err


def test_changed_kernels_are_stale(project: Path, record, kbuild) -> None:
    answer = kbuild("capture", "--check")
    assert (answer.code, "captured/ops.json: has no launches" in answer.err) == (6, True)
    record()
    assert kbuild("capture", "--check").code == 0
    source = project / "my_ops" / "kernels.py"
    source.write_text(source.read_text().replace("    return x\n", "    return x + 1\n"))
    answer = kbuild("capture", "--check")
    assert answer.code == 6
    assert "`k` in my_ops/kernels.py has changed since its launches were captured" in answer.err
    assert "kbuild capture --record -- COMMAND" in answer.err
    assert "`k` in my_ops/kernels.py has changed since" in kbuild("check-config").err
    source.write_text("")
    assert "`k` is gone from my_ops/kernels.py" in kbuild("capture", "--check").err


def test_the_plan_has_an_op_for_each_kind_of_launch(record, kbuild) -> None:
    variant = ("--variant", "torch-stable-abi211-cu130-x86_64-linux")
    answer = kbuild("plan", "--json", *variant)
    assert "`captured/ops.json` does not exist" in answer.err
    assert "kbuild capture --record" in answer.err
    record()
    (plan,) = kbuild("plan", "--json", *variant).json
    (kernel,) = plan["aot"]
    names = [op["schema"].partition("(")[0] for op in kernel["section"]["op"]]
    assert names == ["launch_ops_k_0", "launch_ops_k_1"]
    copies = {file["source"] for file in plan["generated"]}
    assert copies == {"", "my_ops/kernels.py"}
    assert kernel["origin"] == "my_ops/kernels.py"


def test_a_python_only_project_becomes_one_that_is_compiled(project: Path, kbuild) -> None:
    head, _, _ = BUILD.partition("[torch]")
    (project / "build.toml").write_text(f"# About it\n{head}[torch-noarch]\n")
    package = project / "torch-ext" / "demo"
    (package / "__init__.py").write_text("from .layers import k\n")
    (package / "layers.py").write_text(KERNELS)
    assert kbuild("capture", "--package").code == 0
    text = (project / "build.toml").read_text()
    assert text.startswith("# About it\n")
    assert "[torch-noarch]" not in text
    assert 'src = ["torch-ext/demo/**/*.py"]' in text
    assert kbuild("check-config").code == 0
    answer = kbuild("capture", "--package")
    assert "--package takes a project with `[torch-noarch]`" in answer.err
    launch = {"arguments": {"x": "*float16"}, "constants": {}, "options": {}}
    function = {"source": "torch-ext/demo/layers.py", "function": "k", "launches": [launch]}
    (project / "captured").mkdir()
    text = json.dumps({"format": 1, "functions": [function]})
    (project / "captured" / "demo.json").write_text(text)
    (package / "data.pyi").touch()
    plan = kbuild("plan", "--json", "--variant", "*-cu130-x86_64-linux").json[0]
    assert [file["target"] for file in plan["files"]] == ["data.pyi"]
    assert {file["source"] for file in plan["generated"]} == {
        "", "torch-ext/demo/__init__.py", "torch-ext/demo/layers.py",
    }  # fmt: skip
    assert plan["aot"][0]["sources"] == ["torch-ext/demo/layers.py"]


def test_a_table_says_what_is_captured(project: Path, kbuild) -> None:
    text = (project / "build.toml").read_text()
    (project / "build.toml").write_text(text + 'function = "my_ops.kernels:f"\n')
    assert "has both `function` and `launches`" in kbuild("check-config").err
    (project / "build.toml").write_text(text.replace('launches = ["my_ops.*"]\n', ""))
    assert "names nothing to capture" in kbuild("check-config").err
    (project / "build.toml").write_text(text.replace("my_ops/**", "ops/**"))
    assert "`ops/**/*.py` does not exist" in kbuild("check-config").err


@pytest.mark.parametrize(
    ("verbosity", "lines"), [(0, ["norm: path 1: x float16[N]", "norm: path 2: N > 4"]), (-1, [])]
)
def test_each_path_of_a_function_is_a_line(verbosity, lines):
    err = io.StringIO()
    ui = Ui(verbosity=verbosity, err=err)
    with ui.progress("capturing", 2) as progress:
        view = CaptureProgress(progress, ui.say, 2)
        for line in (f"{PATH_WALKED}x float16[N]", "the author's", f"{PATH_WALKED}N > 4"):
            view.take("norm", line)
        view.finish("norm")
    assert err.getvalue().splitlines() == lines


def test_an_interrupted_capture_ends_its_workers(project: Path, kbuild, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    stopped = []
    monkeypatch.setattr("kbuild.plugins.capture.session.capture", interrupted)
    monkeypatch.setattr(LocalRunner, "stop", lambda _: stopped.append(True))
    x = 'arguments = { x = { shape = ["N"], dtypes = ["float32"] } }'
    text = BUILD.replace('launches = ["my_ops.*"]', f'function = "my_ops.kernels:f"\n{x}')
    (project / "build.toml").write_text(text)
    (project / "torch-ext" / "demo" / "__init__.py").write_text("__all__ = []\n")
    assert kbuild("capture").code == 130
    assert stopped
