"""What surrounds a probe, and which of the words that come from it are believed."""

from __future__ import annotations

import ast
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.backends import BACKENDS
from kbuild.checks import probe_cache, probe_process
from kbuild.checks.base import Output
from kbuild.checks.load import NOT_LOADED, LoadCheck
from kbuild.checks.probe_cache import ProbeCache
from kbuild.checks.probe_process import ProbeAnswer, run_probe
from kbuild.system.processes import LocalRunner, ProcessResult
from tests.support.interpreters import Interpreter, make_interpreter

Make = Callable[..., Output]
CPU = json.dumps(BACKENDS.get("cpu").probe_facts())
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are loaded on Linux")


@dataclass
class Home:
    """A user's home with an interpreter in it."""

    folder: Path
    interpreter: Interpreter
    runner: LocalRunner = field(default_factory=LocalRunner)

    def asked(self, expression: str) -> ProbeAnswer:
        """What the probe says when the client answers with an expression's value."""
        client = "import os, sys, socket\nclass Metadata:\n    def read_from_file(path):\n"
        client += f"        raise ValueError('=' + repr(({expression})))\n"
        module = self.interpreter.packages / "kernels" / "__init__.py"
        subject, before = self.folder / "metadata.json", module.read_text()
        module.write_text(client)
        subject.write_text("{}")
        try:
            return run_probe(self.runner, self.interpreter.python, "metadata_probe", subject)
        finally:
            module.write_text(before)

    def value(self, expression: str) -> Any:
        answer = self.asked(expression)
        assert answer.state == "refused", answer
        return ast.literal_eval(answer.reason.partition("=")[2])

    def loaded(self, output: Output, source: str, **how: Any) -> ProbeAnswer:
        (output.root / "__init__.py").write_text(source)
        arguments = (output.root, "torch-cpu", CPU, "_relu_cpu_1", "torch", "1")
        return run_probe(self.runner, self.interpreter.python, "load_probe", *arguments, **how)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    folder = tmp_path / "home"
    monkeypatch.setattr(probe_process, "_BROKEN_SANDBOXES", set())
    made = Home(folder, make_interpreter(folder / "venv"))
    monkeypatch.setenv("HOME", str(folder))
    return made


@pytest.fixture
def sandboxed(home: Home) -> Home:
    if not home.asked("1").sandboxed:
        pytest.skip("no sandbox can be made here")
    return home


@pytest.fixture
def plain(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(probe_process, "BUBBLEWRAP", "no-such-program")
    return home


@pytest.fixture(params=["sandboxed", "plain"])
def either(request: pytest.FixtureRequest) -> Home:
    found: Home = request.getfixturevalue(request.param)
    return found


SECRETS = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "https_proxy",
    "SSH_AUTH_SOCK", "TRITON_API_KEY", "GITHUB_TOKEN", "NETRC", "PYTHONSTARTUP", "XDG_CONFIG_HOME",
)  # fmt: skip


def test_the_environment_is_chosen(either: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("PYTHONPATH", ".:relative:/absolute")
    environ = either.value("dict(os.environ)")
    assert not set(SECRETS) & set(environ)
    assert environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert environ["PYTHONPATH"] == "/absolute"
    assert environ["HOME"] == environ["TMPDIR"]


def test_the_folder_is_its_own_and_goes(either: Home) -> None:
    folder, listed, home = either.value("os.getcwd(), os.listdir(), os.path.expanduser('~')")
    assert folder == home
    assert listed == []
    assert not Path(folder).exists()
    assert either.value("open('x', 'w').write('y')") == 1


def test_resources_are_limited(either: Home) -> None:
    limits = "[__import__('resource').getrlimit(kind) for kind in ({}, {}, {})]"
    kinds = [f"__import__('resource').RLIMIT_{name}" for name in ("CORE", "CPU", "FSIZE")]
    core, cpu, size = either.value(limits.format(*kinds))
    assert core == (0, 0)
    assert 0 < cpu[1] <= 3600
    assert 0 < size[1] <= 8 << 30


def test_no_way_to_the_network(sandboxed: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert sandboxed.value(f"socket.socket().connect_ex({address!r})") != 0


def test_the_home_is_hidden_but_for_the_interpreter(sandboxed: Home) -> None:
    (sandboxed.folder / "secret").write_text("s")
    (sandboxed.folder / ".local" / "share" / "keyrings").mkdir(parents=True)
    assert sandboxed.value(f"sorted(os.listdir({str(sandboxed.folder)!r}))") == [
        "metadata.json",
        "venv",
    ]


def test_nothing_can_be_written(sandboxed: Home, noarch: Make) -> None:
    file = sandboxed.interpreter.packages / "written.py"
    assert sandboxed.value(f"os.access({str(file.parent)!r}, os.W_OK)") is False
    assert "Read-only" in sandboxed.loaded(noarch(), f"open({str(file)!r}, 'w')").reason


def test_other_processes_are_not_seen(sandboxed: Home) -> None:
    numbers = "[name for name in os.listdir('/proc') if name.isdigit()]"
    assert len(sandboxed.value(numbers)) <= 4


@pytest.mark.parametrize("kind", ["pth", "editable", "PYTHONPATH"])
def test_what_packages_lead_to_is_there(
    sandboxed: Home, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As editable installs do; they may lie anywhere in a home."""
    source, packages = sandboxed.folder / "work" / "library", sandboxed.interpreter.packages
    source.mkdir(parents=True)
    (source / "library.py").write_text("ANSWER = 42\n")
    expression = "__import__('library').ANSWER"
    if kind == "pth":
        (packages / "library.pth").write_text(f"{source}\n")
    elif kind == "PYTHONPATH":
        monkeypatch.setenv("PYTHONPATH", str(source))
    else:
        url = {"url": f"file://{source}", "dir_info": {"editable": True}}
        (packages / "library-1.dist-info").mkdir()
        (packages / "library-1.dist-info" / "direct_url.json").write_text(json.dumps(url))
        expression = f"(sys.path.append({str(source)!r}), {expression})[1]"
    probe_process._of_interpreter.cache_clear()
    assert sandboxed.value(expression) == 42


def test_a_sandbox_that_cannot_be_made(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    answer = home.asked("1")
    assert answer.state == "refused"
    assert not answer.sandboxed
    assert not probe_process.is_sandboxed()


def test_a_sandbox_can_be_turned_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBUILD_SANDBOX", "off")
    answer = home.asked("1")
    assert answer.state == "refused"
    assert not answer.sandboxed


# Which words are believed


LOADED = '{"state": "loaded", "reason": "", "ops": {}}'
PRINTS = f"import os\nprint({LOADED!r}, flush=True)\nos._exit(0)\n"
SHOUTS = f"""
import os
line = {LOADED!r}.encode() + bytes([10])
for number in range(3, 256):
    for said in (line, b">" + line, b"=" + line):
        try:
            os.write(number, said)
        except OSError:
            pass
os._exit(0)
"""


@pytest.mark.parametrize(("source", "state"), [(PRINTS, "died"), (SHOUTS, "forged")])
def test_a_kernel_that_speaks_as_the_probe(
    either: Home, noarch: Make, source: str, state: str
) -> None:
    assert either.loaded(noarch(), source).state == state


def test_the_secret_is_in_no_argument_and_no_variable(
    either: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, dict[str, Any]]] = []
    run = either.runner.run

    def watched(argv: Any, **how: Any) -> ProcessResult:
        started.append((argv, how))
        return run(argv, **how)

    monkeypatch.setattr(either.runner, "run", watched)
    either.value("1")
    ((argv, how),) = started
    secret = how["stdin"].strip()
    assert len(secret) >= 32
    assert secret not in " ".join(argv)
    assert secret not in " ".join(how["env"].values())


def test_a_kernel_that_does_not_return(either: Home, noarch: Make) -> None:
    source = (
        "import faulthandler, time\nfaulthandler.cancel_dump_traceback_later()\ntime.sleep(99)\n"
    )
    answer = either.loaded(noarch(), source, patience_s=2)
    assert answer.state == "hung"
    assert answer.doing == "importing _relu_cpu_1"


def test_a_kernel_that_prints_without_end(either: Home, noarch: Make) -> None:
    source = "import os\nfor _ in range(64):\n    os.write(1, b'x' * (1 << 20))\nos._exit(3)\n"
    answer = either.loaded(noarch(), source)
    assert (answer.state, answer.returncode) == ("died", 3)
    assert (1 << 20) < len(answer.reason) < (32 << 20)


def test_a_kernel_that_answers_without_end(either: Home, noarch: Make) -> None:
    source = """
import os
for number in range(3, 64):
    try:
        while os.write(number, bytes([120]) * (1 << 16)):
            pass
    except OSError:
        pass
os._exit(0)
"""
    assert either.loaded(noarch(), source).state in {"died", "forged"}


def test_what_a_kernel_leaves_running_is_not_waited_for(
    either: Home, noarch: Make, tmp_path: Path
) -> None:
    """It has the descriptors that the kernel had."""
    ended, waited = tmp_path / "ended", tmp_path / "waited"
    source = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(200):
        time.sleep(0.1)
        if os.path.exists({str(ended)!r}):
            os._exit(0)
    open({str(waited)!r}, "w").close()
os._exit(4)
"""
    assert either.loaded(noarch(), source).returncode == 4
    ended.touch()
    assert not waited.exists()


# What is loaded at all


def checked(home: Home, output: Output, cache: Path, **how: Any) -> list[tuple[str, str]]:
    asked = replace(
        output,
        python=home.interpreter.python,
        probe_cache=ProbeCache(cache),
        built_elsewhere=not probe_cache.is_built_here(cache, output.root),
        **how,
    )
    return [(finding.severity, finding.what) for finding in LoadCheck().run(asked)]


def test_a_variant_from_elsewhere_is_not_loaded(either: Home, noarch: Make, tmp_path: Path) -> None:
    output, cache = noarch({"__init__.py": "raise RuntimeError('was run')\n"}), tmp_path / "cache"
    assert checked(either, output, cache) == [("info", NOT_LOADED)]
    ((severity, what), *_) = checked(either, output, cache, loads_foreign=True)
    assert severity == "error"
    assert "was run" in what


def test_a_variant_that_was_built_here_is_loaded(
    either: Home, noarch: Make, tmp_path: Path
) -> None:
    output, cache = noarch(), tmp_path / "cache"
    probe_cache.record_built(cache, output.root)
    assert checked(either, output, cache) == []


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file": lambda root: (root / "_ops.py").write_text("#"),
    "a new file": lambda root: (root / "conftest.py").write_text(""),
    "bytecode": lambda root: (root / "__pycache__").mkdir() or (root / "__pycache__/x.pyc").touch(),
    "a linked folder": lambda root: (root / "more").symlink_to("/usr"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_since_is_foreign(noarch: Make, tmp_path: Path, change: str) -> None:
    output, cache = noarch(), tmp_path / "cache"
    probe_cache.record_built(cache, output.root)
    assert probe_cache.is_built_here(cache, output.root)
    CHANGES[change](output.root)
    assert not probe_cache.is_built_here(cache, output.root)


def test_without_a_sandbox_it_says_so(plain: Home, noarch: Make, tmp_path: Path) -> None:
    output = noarch()
    ((severity, what),) = checked(plain, output, tmp_path / "cache", loads_foreign=True)
    assert severity == "info"
    assert "without a sandbox" in what
