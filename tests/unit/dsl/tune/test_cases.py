"""From an op's `tune` table to calls, and several models at the same time."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kbuild.dsl.tune.cases import (
    MOST_BYTES,
    InvalidCase,
    benchmark_cases,
    default_cases,
    make_case,
    read_shapes,
)
from kbuild.dsl.tune.host import Device
from kbuild.dsl.tune.jobs import is_made_for
from kbuild.dsl.tune.tuning import TuneResult, TuningProgress, require_complete, tune_models
from kbuild.ops.model import TuneProposal, TuneSpec
from kbuild.system.errors import ConfigError, IncompleteError, ToolchainError
from tests.support.sections import op_of, said, text_of

DTYPES = {"x": "float16", "w": "float16", "b": "float16", "out": "float16"}


def case(op, **given):
    pairs = tuple((name.replace("rest", "..."), value) for name, value in given.items())
    return make_case(op, DTYPES, pairs, {"sm_count()": 132})


class TestTable:
    def test_cases_and_all_combinations(self):
        text = text_of(
            tune="{ cases = [{ N = 3, n = 2, eps = 1, b = false }], "
            'sizes = { N = [1, 2], "..." = [[2, 3], 4] } }'
        )
        assert op_of(text).tune == TuneSpec(
            cases=(
                (("N", 3), ("n", 2), ("eps", 1.0), ("b", False)),
                (("N", 1), ("...", (2, 3))),
                (("N", 1), ("...", (4,))),
                (("N", 2), ("...", (2, 3))),
                (("N", 2), ("...", (4,))),
            )
        )

    @pytest.mark.parametrize(
        ("tune", "words"),
        [
            ("{ cases = [{ M = 1, N = 1 }] }", "tune.cases[0].M: `M` is neither a dimension nor"),
            ("{ cases = [{ n = 1 }] }", "tune.cases: lacks `N`"),
            ("{ cases = [{ N = -1 }] }", "cases[0].N: `-1` is not a size, 0 or more"),
            ("{ cases = [{ N = 1.5 }] }", "cases[0].N: `1.5` is not a size"),
            ("{ cases = [{ N = true }] }", "cases[0].N: `True` is not a size"),
            ("{ cases = [{ N = 1, f = 1 }] }", "cases[0].f: `1` is not of the type bool"),
            ("{ cases = [{ N = 1, b = 1 }] }", "b: `1` is not true when it is given"),
            ("{ cases = [{ N = 1, n = 1.5 }] }", "cases[0].n: `1.5` is not of the type int"),
            ("{ cases = [{ N = 1, eps = inf }] }", "eps: `inf` is not of the type float"),
            ('{ cases = [{ N = 1, "..." = "a" }] }', "is not a size, or a list of sizes"),
            ("{ sizes = { N = [] } }", "tune.sizes.N: lists no values"),
            ("{ sizes = { n = [1, 2] } }", "tune.sizes: lacks `N`"),
            ('{ reference = "f" }', "tune.reference: `f` does not name a function"),
            ('{ inputs = "a/b:f" }', "tune.inputs: `a/b:f` does not name a function"),
            ("{ rtol = -1 }", "tune.rtol: `-1` is not a tolerance"),
            ('{ rtol = "1" }', "tune.rtol: must be a float or an integer, not a string"),
            ("{ case = [] }", "tune.case: unknown key"),
            (f"{{ sizes = {{ N = {[*range(5000)]} }} }}", "makes 5000 cases, more than 4096"),
        ],
        ids=lambda text: str(text)[:40],
    )
    def test_what_is_wrong(self, tune, words):
        assert words in said(text_of(tune=tune))

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("s.json", '{"k": [{"N": -5}]}', "k.cases[0].N: `-5` is not a size"),
            ("s.json", '{"k": 5}', "must be a list of cases"),
            ("s.json", "[", "s.json: "),
            ("s.json", "[]", "is not a table of ops"),
            ("s.toml", "k = [{ N = -5 }]", "k.cases[0].N: `-5` is not a size"),
        ],
    )
    def test_what_is_wrong_in_a_file(self, tmp_path, name, text, words):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError) as caught:
            read_shapes(tmp_path / name, (op_of(text_of()),))
        assert words in str(caught.value)


class TestCase:
    OP = op_of(text_of(key='["N", "numel(x)", "stride(x, 0)", "has(b)", "sm_count()"]'))

    def test_shapes_key_and_arguments(self):
        found = case(self.OP, N=64, rest=(2, 3))
        assert dict(found.shapes) == {"x": (2, 3, 64), "w": (64,), "b": (64,)}
        assert found.key == (64, 384, 192, 1, 132)
        assert found.bytes == 2 * (384 + 64 + 64 + 384)
        assert [one.get("shape", one.get("value")) for one in found.arguments()] == [
            (2, 3, 64),
            (64,),
            (64,),
            1,
            1e-6,
            False,
        ]
        assert found.label == "k N=64 ...=2x3 float16"

    def test_a_tensor_that_is_none(self):
        found = case(self.OP, N=64, b=False)
        assert dict(found.shapes)["b"] is None
        assert found.key[3] == 0

    def test_lists_of_tensors(self):
        text = text_of(
            schema='"k(Tensor[2] xs, Tensor?[2] bs, int n) -> Tensor"',
            shapes='{ xs = ["N"], bs = ["N"], out = "xs[0]" }',
            tune='{ cases = [{ N = 4, n = 1, "bs[1]" = false }] }',
        )
        dtypes = dict.fromkeys(("xs[0]", "xs[1]", "bs[0]", "bs[1]", "out"), "float16")
        (said,) = op_of(text).tune.cases
        found = make_case(op_of(text), dtypes, said, {})
        arguments = found.arguments()
        assert [one["name"] for one in arguments] == ["xs[0]", "xs[1]", "bs[0]", "bs[1]", "n"]
        assert [one.get("shape") for one in arguments] == [(4,), (4,), (4,), None, None]
        assert [(one.get("list"), one.get("item")) for one in arguments[1:4]] == [
            ("xs", 1),
            ("bs", 0),
            ("bs", 1),
        ]

    def test_a_condition_that_does_not_hold(self):
        op = op_of(text_of(require='["N % 16 == 0"]'))
        with pytest.raises(InvalidCase, match="`N % 16 == 0` does not hold"):
            case(op, N=8)
        assert case(op, N=32).key == ()

    def test_a_number_that_nothing_says(self):
        op = op_of(text_of(schema='"k(Tensor x, Tensor w, Tensor? b, int n) -> Tensor"'))
        with pytest.raises(InvalidCase, match="`n` has no value"):
            case(op, N=8)

    def test_a_tensor_without_a_shape(self):
        op = op_of(text_of(shapes='{ w = ["N"], b = ["N"], out = "w" }'))
        with pytest.raises(InvalidCase, match="the shape of `x` does not follow"):
            case(op, N=8)

    def test_when(self):
        op = op_of(text_of(configs='[{ BLOCK = 1, when = "N > 10" }, { BLOCK = 2 }]'))
        assert not case(op, N=8).holds(0, 0)
        assert case(op, N=16).holds(0, 0)
        assert case(op, N=8).holds(0, 1)


class TestOrdinary:
    def test_powers_of_two_one_for_each_key(self):
        op = op_of(text_of(key='["N"]'))
        cases, left_out = benchmark_cases(op, DTYPES, {"sm_count()": 132})
        assert left_out == []
        assert [found.key for found in cases] == [(2**n,) for n in (6, 8, 10, 12, 14)]
        assert all(found.bytes <= MOST_BYTES for found in cases)
        assert max(found.bytes for found in cases) > MOST_BYTES // 64

    def test_why_there_is_none(self):
        op = op_of(text_of(require='["N == 3"]'))
        cases, left_out = benchmark_cases(op, DTYPES, {"sm_count()": 132})
        assert cases == []
        assert [reason for _, reason in left_out] == ["`N == 3` does not hold"]

    @pytest.mark.parametrize(
        ("proposal", "sizes"),
        [
            (TuneProposal((("N", 512),)), (512,)),
            (TuneProposal((), (("N", 1 << 10),)), (64, 256, 1024)),
            (TuneProposal((), (("N", 100),)), (64,)),
            (TuneProposal((), (("N", 33),)), (32,)),
            (TuneProposal(), (64, 256, 1024, 4096, 16384)),
        ],
        ids=str,
    )
    def test_what_the_kernel_proposes(self, proposal, sizes):
        op = op_of(text_of(key='["N"]'))
        op = replace(op, tune=replace(op.tune, proposals=(proposal,)))
        cases, left_out = benchmark_cases(op, DTYPES, {"sm_count()": 132})
        assert {found.key for found in cases} == {(n,) for n in sizes}
        assert left_out == []

    def test_sizes_that_are_all_proposed(self):
        op = op_of(text_of(shapes='{ x = ["M", "N"], w = ["N"], b = ["N"], out = "x" }'))
        op = replace(op, tune=TuneSpec(proposals=tuple(
            TuneProposal((("M", m), ("N", 1 << 20))) for m in (512, 4096)
        )))  # fmt: skip
        assert list(default_cases(op)) == [(("M", m), ("N", 1 << 20)) for m in (512, 4096)]
        cases, _ = benchmark_cases(op, DTYPES, {"sm_count()": 132})
        assert [dict(one.call)["M"] for one in cases] == [512]  # the least, though it is large


@pytest.mark.parametrize(
    ("archs", "device", "expected"),
    [
        ("[]", "sm_75", True),
        ('["9.0"]', "sm_90", True),
        ('["9.0a"]', "sm_90", True),
        ('["8.0"]', "sm_89", True),
        ('["8.0"]', "sm_90", False),
        ('["10.0f"]', "sm_103", True),
        ('["10.0a"]', "sm_103", False),
        ('["gfx942"]', "gfx942", True),
        ('["gfx942"]', "sm_90", False),
        ('["9.0"]', "cpu", False),
    ],
)
def test_devices_that_a_candidate_is_made_for(archs, device, expected):
    op = op_of(text_of(configs=f"[{{ BLOCK = 1, archs = {archs} }}]"))
    assert is_made_for(op.launches[0].candidates[0], device) is expected


def test_questions_to_the_device_and_about_addresses():
    op = op_of(
        text_of(let='{ tma = "capability() == 90 and address(x) % 16 == 0" }', require='["tma"]')
    )
    answers = {"sm_count()": 132, "capability()": 90}
    assert make_case(op, DTYPES, (("...", (2,)), ("N", 64)), answers).values["tma"] == 1
    with pytest.raises(InvalidCase, match="does not hold"):
        make_case(op, DTYPES, (("...", (2,)), ("N", 64)), {**answers, "capability()": 80})


def device(name: str) -> Device:
    return Device("cuda:0", name, "sm_90", 132)


def run(name: str, perform):
    return SimpleNamespace(devices=[device(name)], perform=perform)


def test_models_are_tuned_at_the_same_time_and_keep_their_order():
    both = threading.Barrier(2, timeout=10)

    def perform(name: str):
        both.wait()
        return TuneResult(device(name), ())

    runs = [run(name, lambda name=name: perform(name)) for name in ("B", "A")]
    assert [result.device.name for result in tune_models(runs)] == ["B", "A"]


def test_an_error_is_one_models_alone():
    def fail():
        raise ToolchainError("no device is left")

    results = tune_models([run("A", fail), run("B", lambda: TuneResult(device("B"), ()))])
    assert results[0].to_json()["error"] == "no device is left"
    assert "error" not in results[1].to_json()
    with pytest.raises(ToolchainError, match="no device is left"):
        require_complete(results)
    with pytest.raises(IncompleteError):
        require_complete([TuneResult(device("A"), (), unmeasured=2)])


def test_one_view_of_all_models():
    lines, now = [], [0.0]
    view = TuningProgress(
        SimpleNamespace(update=lambda *values: lines.append(values)), lambda: now[0]
    )
    view.expect(30, 24)
    view.expect(3, 0)
    view.show("gemm", is_done=False)
    now[0] = 9.0
    for _ in range(3):
        view.show("gemm", is_done=True)
    assert lines[0] == (24, 33, "gemm", None)
    assert lines[-1] == (27, 33, "gemm", 18.0)
