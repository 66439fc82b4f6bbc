"""`kbuild aot cute`: what is wrong with a command line, before anything is compiled."""

from __future__ import annotations

import pytest

GOOD = ["--function", "add", "--arg", "x=float32[N]", "--target", "sm_90a"]


@pytest.fixture
def source(here):
    (here / "k.py").write_text("")
    return "k.py"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (GOOD[2:], "`kbuild aot cute` needs --function"),
        (GOOD[:4], "`kbuild aot cute` needs --target"),
        ([*GOOD, "--target", "sm_75"], "`sm_75` is nothing that nvidia-cutlass-dsl==4.8.1"),
        ([*GOOD, "--target", "compute_90"], "`compute_90` is nothing that"),
        ([*GOOD, "--target", "gfx942"], "`gfx942` is nothing that"),
        ([*GOOD, "--target", "90"], "`90` is not a target"),
        ([*GOOD, "--arg", "x"], "--arg: `x` is not an argument"),
        ([*GOOD, "--toolchain", "nvidia-cutlass-dsl==4.4.2"], "libcuda.so.1"),
        ([*GOOD, "--emit", "ptx"], "invalid choice"),
        ([*GOOD, "--function-prefix", "a-b"], "`a-b` cannot begin the name of a C function"),
        ([*GOOD, "-t", "sm_80", "--function-prefix", "a"], "--function-prefix works with one"),
    ],
)
def test_what_is_wrong(kbuild, source, arguments, words):
    done = kbuild("aot", "cute", source, *arguments)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize(
    ("said", "targets"),
    [("9.0\n8.0\n9.0\n", ["sm_80", "sm_90a"]), ("12.0\n", ["sm_120a"]), ("8.9\n", ["sm_89"])],
)
def test_without_a_target_it_is_what_this_machine_has(said, targets):
    from kbuild.dsl.export import targets_of_gpus
    from kbuild.dsl.languages.cute.export import parse_targets
    from kbuild.system.processes import ProcessResult

    class Smi:
        def run(self, argv, **_):
            ok = argv[0] == "nvidia-smi"
            return ProcessResult(tuple(argv), 0 if ok else 127, said if ok else "", 0.0)

    found = targets_of_gpus(Smi(), "cute", ("cuda",))
    assert [str(t) for t in parse_targets(found, ("nvidia-cutlass-dsl==4.8.1",))] == targets


def test_amd_gpus_are_targets_of_triton():
    from kbuild.dsl.export import targets_of_gpus
    from kbuild.system.processes import ProcessResult

    class Enumerator:
        def run(self, argv, **_):
            ok = argv[0] == "rocm_agent_enumerator"
            return ProcessResult(
                tuple(argv), 0 if ok else 127, "gfx000\ngfx942\n" if ok else "", 0.0
            )

    assert targets_of_gpus(Enumerator(), "triton", ("cuda", "rocm")) == ["hip:gfx942"]
