"""Whatever is in a build.toml, a ConfigError is all that can come out."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbuild.plan.project import open_project
from kbuild.project.config.update import update_text
from kbuild.system.errors import ConfigError

WHOLE = """\
[general]
name = "relu"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "rocm", "xpu"]
upstream = "https://github.com/o/n"
kernel-depends = [{ repo-id = "o/n", version = 1 }]
python-depends = ["einops"]
hub = { repo-id = "o/n", branch = "main" }

[general.cuda]
minver = "12.6"
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = ["a.cpp"]
include = ["inc"]
stable-abi = { cuda = "2.11" }

[torch-noarch]
cuda_capabilities = ["9.0"]

[kernel.relu]
backend = "cuda"
depends = ["torch", "cutlass_3_9"]
src = ["a.cpp"]
cuda-capabilities = ["8.0", "9.0a"]

[kernel.other]
backend = "rocm"
depends = []
src = ["a.cpp"]
rocm-archs = ["gfx942"]
"""
PIECES = [
    *WHOLE.split(),
    *WHOLE.splitlines(keepends=True),
    *"[]{}=.,#'\"\\\n\r\t",
    "\x00",
    "é",
    "[[general]]\n",
    "[[kernel]]\n",
    "kernel = [1]\n",
    '"\\u0000"',
    "1979-05-27T07:32:00Z",
    "1e400",
    "nan",
    "-0",
    "99999999999999999999",
    "0x_1",
    '"""',
    "true",
    "[[]]",
    "{}",
]
QUIET = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def mutated(draw):
    """The whole file with some words cut out, doubled or replaced."""
    text = WHOLE
    source = draw(st.randoms(use_true_random=False))
    for _ in range(source.randint(1, 6)):
        start = source.randrange(len(text) + 1)
        end = min(len(text), start + source.choice([0, 0, 1, 3, 12, 60]))
        text = text[:start] + source.choice(PIECES) + text[end:]
    return text


SCALARS = """
1 -1 1.5 true "" "x" "cuda" "9.0" "a/b" [] {} [1] ["x"] {x=1} [{}] [{version="x"}] [[1]]
1979-05-27 "\\u0000" "../x" ["../x","/x",""] {cuda=1} {cuda="x",cpu={}}
"""
scalars = st.sampled_from(SCALARS.split())


@st.composite
def retyped(draw):
    """The whole file with the values of some keys replaced by values of any type: valid TOML."""
    lines = WHOLE.splitlines()
    for number in draw(st.sets(st.sampled_from(range(len(lines))), max_size=8)):
        key, equals, _ = lines[number].partition(" = ")
        if equals:
            lines[number] = f"{key} = {draw(scalars)}"
    return "\n".join(line for line in lines if draw(st.integers(0, 15)))


def failure_of(project, text):
    root = project(text)
    try:
        open_project(root)
    except ConfigError as error:
        return error
    return None


def assert_speaks(project, text):
    error = failure_of(project, text)
    if error is not None:
        assert error.problems
        assert all(problem.message in str(error) for problem in error.problems)


@QUIET
@given(text=mutated())
def test_mutated_files(project, text):
    assert_speaks(project, text)


@pytest.mark.full
@QUIET
@given(text=retyped())
def test_values_of_other_types(project, text):
    assert_speaks(project, text)


@QUIET
@given(data=st.binary(max_size=60))
def test_any_bytes(project, data):
    assert_speaks(project, data)


@QUIET
@given(text=mutated() | retyped())
def test_updating_anything(text):
    try:
        updated = update_text(text)
    except ConfigError:
        return
    assert update_text(updated) == updated
