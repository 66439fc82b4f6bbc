"""Units of an op, and their keys."""

from __future__ import annotations

import dataclasses
import json
from random import Random

import pytest

from kbuild.dsl.languages.triton import Triton
from kbuild.dsl.launcher.resolved_kernel import is_compiled_for
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.expand import expand
from kbuild.ops.expression import parse
from kbuild.ops.steps import ArgumentSource, Candidate
from kbuild.ops.unit import ImageTarget, KernelUnit, targets_of_arch
from tests.support.sections import example, op_of, text_of

ARCHS = (ImageTarget.parse("sm_80"), ImageTarget.parse("sm_90a"), ImageTarget.parse("compute_80"))
SOURCES = {"k.py": "0" * 64}
TOOLS = {"triton": "3.9.0"}


def without_optional(**keys):
    return op_of(
        text_of(
            schema='"k(Tensor x, int n, float eps, bool f) -> Tensor"',
            shapes='{ x = ["N"], out = "x" }',
            **keys,
        )
    )


def test_the_product():
    """2 dtypes x 2 candidates x {aligned, plain} x 3 targets."""
    units = expand(without_optional(), ARCHS)
    assert len(units) == len(set(units)) == 24
    assert {str(unit.target) for unit in units} == {"sm_80", "sm_90a", "compute_80"}
    assert {unit.aligned for unit in units} == {True, False}
    first = units[0]
    assert first.dtypes == (("x", "float16"), ("out", "float16"))
    assert first.constants == (("BLOCK", 128),)
    assert first.options == (("num_warps", 4),)
    assert first.scalars == (("n", "int"), ("eps", "float"), ("f", "bool"), ("N", "int"))


def test_assumptions_are_those_of_aligned_units():
    op = without_optional(divisible='["n"]', ones='["N"]', int64='["n"]')
    for unit in expand(op, ARCHS):
        assert unit.divisible == (("n",) if unit.aligned else ())
        assert unit.ones == (("N",) if unit.aligned else ())
        assert unit.int64 == ("n",)


@pytest.mark.parametrize(("when", "count"), [("f", 1), ("f or n > 1", 1), ("n > 1", 2)])
def test_a_launch_that_contradicts_what_is_returned_has_no_units(when: str, count: int) -> None:
    op = op_of(
        text_of(
            schema='"k(Tensor x, int n, bool f) -> (Tensor y, Tensor? z)"',
            shapes='{ x = ["N"], y = "x", z = "x" }',
            returned='{ z = "f or n > 1" }' if "or" in when else '{ z = "f" }',
            grid=None,
            configs=None,
            _more=f'[[kernel.k.op.launch]]\nfunction = "k"\ngrid = [1]\nwhen = "{when}"\n',
        )
    )
    assert len({unit.absent for unit in expand(op, ARCHS)}) == count


def test_a_constant_and_an_argument_that_are_none():
    op = op_of(text_of(constants='{ ACT = "None" }', args='{ bias = "None" }'))
    (unit, *_) = expand(op, ARCHS[:1])
    assert dict(unit.constants)["ACT"] is None
    assert unit.args == (("bias", "None"),)
    assert KernelUnit.from_json(json.loads(json.dumps(unit.to_json()))) == unit
    bound = BoundLaunch(
        "k", (("x", ArgumentSource("tensor", "x")), *op.launches[0].args), ("ACT",), tuned=True
    )
    request = Triton().request(unit, bound)
    assert (request["types"]["bias"], request["constants"]["ACT"]) == ("none", None)
    assert request["tuned"] is True


def test_a_tensor_that_may_be_none():
    units = expand(op_of(text_of(constants='{ HAS = "has(b)" }')), ARCHS[:1])
    assert {(unit.absent, dict(unit.constants)["HAS"]) for unit in units} == {
        ((), True),
        (("b",), False),
    }
    assert len(units) == 2 * 2 * 2 * 2


def test_constants_that_calls_decide():
    constants = '{ W = { value = "next_pow2(N)", choices = [64, 128] }, EVEN = "N % BLOCK == 0" }'
    units = expand(without_optional(constants=constants, dtypes='"float16"'), ARCHS[:1])
    assert len(units) == 2 * 2 * 4
    assert {dict(unit.constants)["W"] for unit in units} == {64, 128}


def test_constants_that_candidates_decide():
    constants = '{ BIG = "BLOCK > 128" }'
    units = expand(without_optional(constants=constants), ARCHS)
    assert len(units) == 24
    assert {tuple(dict(unit.constants).values()) for unit in units} == {(128, False), (256, True)}


def test_conditions_on_dtypes():
    let = "{ half = \"dtype(x) == 'float16'\" }"
    configs = """[
        { BLOCK = 1, when = "half" },
        { BLOCK = 2, when = "dtype(out) != 'float16'" },
        { BLOCK = 4 },
    ]"""
    units = expand(without_optional(configs=configs, let=let), ARCHS[:1])
    assert {(dict(u.dtypes)["x"], dict(u.constants)["BLOCK"]) for u in units} == {
        ("float16", 1),
        ("float16", 4),
        ("float32", 2),
        ("float32", 4),
    }


def test_predicates_on_the_device():
    configs = '[{ BLOCK = 1, when = "capability() >= 89" }, { BLOCK = 2 }]'
    op = without_optional(configs=configs)
    named = [
        ImageTarget.parse(name) for name in ("sm_80", "sm_87a", "sm_90a", "gfx942", "compute_80")
    ]
    found = {(str(u.target), dict(u.constants)["BLOCK"]) for u in expand(op, named)}
    assert found == {
        *((str(target), 2) for target in named),
        *((name, 1) for name in ("sm_80", "sm_90a", "compute_80")),
    }


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_the_order_in_which_conditions_are_joined_compiles_nothing_more(order):
    parts = ["capability() >= 90", "n == 3", "itemsize(x) == 2"]
    when = " and ".join(parts[at] for at in order)
    op = without_optional(configs=f'[{{ BLOCK = 1, when = "{when}" }}, {{ BLOCK = 2 }}]')
    units = expand(op, [ImageTarget.parse(name) for name in ("sm_80", "sm_90a")])
    first = [unit for unit in units if dict(unit.constants)["BLOCK"] == 1]
    assert {(str(u.target), dict(u.dtypes)["x"]) for u in first} == {("sm_90a", "float16")}


def test_a_condition_that_another_guards_compiles_nothing_less():
    when = "(n == 0 and N > 4) or (n != 0 and 8 // n == 2)"
    configs = f'[{{ BLOCK = 1, when = "{when}" }}, {{ BLOCK = 2 }}]'
    units = expand(without_optional(configs=configs), ARCHS[:1])
    assert {dict(unit.constants)["BLOCK"] for unit in units} == {1, 2}


def test_candidates_of_some_archs():
    configs = '[{ BLOCK = 1, archs = ["9.0"] }, { BLOCK = 2, archs = ["8.0", "gfx942"] }]'
    op = without_optional(configs=configs)
    units = expand(op, (*ARCHS, ImageTarget.parse("gfx942")))
    assert {(str(u.target), dict(u.constants)["BLOCK"]) for u in units} == {
        *{("sm_90a", 1), ("sm_80", 2), ("compute_80", 2), ("gfx942", 2)}
    }


def test_what_differs_only_in_its_predicate_is_compiled_once():
    configs = '[{ BLOCK = 1, when = "N < 5" }, { BLOCK = 2, when = "N < 9" }, { BLOCK = 1 }]'
    assert len(expand(without_optional(configs=configs), ARCHS[:1])) == 2 * 2 * 2


def test_the_kernels_own_candidates():
    op = without_optional(configs='"autotune"')
    with pytest.raises(ValueError, match="the candidates of launch 0 of `k` are not known"):
        expand(op, ARCHS)
    own = [Candidate((("BLOCK", 1),)), Candidate((("BLOCK", 2),))]
    assert len(expand(op, ARCHS, {0: own})) == 24


def test_dtypes_as_constants():
    constants = '{ T = { dtype = "x" }, ACC = { dtype = "float32" }, FLAG = true }'
    units = expand(without_optional(constants=constants), ARCHS[:1])
    assert {u.dtype_constants for u in units} == {
        (("T", dtype), ("ACC", "float32")) for dtype in ("float16", "float32")
    }
    assert all(dict(unit.constants)["FLAG"] is True for unit in units)
    assert all("T" not in dict(unit.constants) for unit in units)


def test_descriptors_and_tuples_are_part_of_a_unit():
    args = '{ d = { tensor = "x", block = ["BLOCK"] }, t = ["N", "n"] }'
    unit = expand(without_optional(args=args), ARCHS)[0]
    assert dict(unit.args) == {"d": "descriptor(x, [BLOCK], zero)", "t": "(N, n,)"}
    assert KernelUnit.from_json(json.loads(json.dumps(unit.to_json()))) == unit


def test_a_tensor_that_is_none_has_no_dtype():
    dtypes = '{ x = "float16", w = "x", b = ["float16", "float32"], out = "x" }'
    units = expand(op_of(text_of(dtypes=dtypes)), ARCHS[:1])
    kinds = [(u.absent, dict(u.dtypes)["b"]) for u in units if u.aligned]
    assert sorted(kinds) == sorted([((), "float16"), ((), "float32"), (("b",), "float16")] * 2)


def test_launches_that_some_calls_skip():
    launches = """
[[kernel.k.op.launch]]
function = "with_b"
when = "has(b) and itemsize(x) == 2"
grid = [1]
[[kernel.k.op.launch]]
function = "without_b"
when = "not has(b)"
grid = [1]
"""
    units = expand(op_of(text_of(launches, grid=None, configs=None)), ARCHS[:1])
    assert {(u.functions[0], u.absent, dict(u.dtypes)["x"]) for u in units} == {
        ("with_b", (), "float16"),
        ("without_b", ("b",), "float16"),
        ("without_b", ("b",), "float32"),
    }


class TestKeys:
    def test_every_unit_has_its_own(self):
        units = expand(op_of(text_of(constants='{ HAS = "has(b)" }')), ARCHS)
        keys = {unit.key(SOURCES, TOOLS) for unit in units}
        assert len(keys) == len(units)
        assert all(len(key) == 64 for key in keys)

    def test_stable(self):
        """Changing this string throws away every cache: raise the format when that is meant."""
        unit = expand(without_optional(), ARCHS)[0]
        assert unit.key(SOURCES, TOOLS) == STABLE

    @pytest.mark.parametrize(
        ("sources", "tools"),
        [
            ({"k.py": "1" * 64}, TOOLS),
            ({"l.py": "0" * 64}, TOOLS),
            ({**SOURCES, "l.py": ""}, TOOLS),
            (SOURCES, {"triton": "3.9.1"}),
            (SOURCES, {**TOOLS, "ptxas": "13.0"}),
        ],
    )
    def test_what_goes_in(self, sources, tools):
        unit = expand(without_optional(), ARCHS)[0]
        assert unit.key(sources, tools) != unit.key(SOURCES, TOOLS)

    @pytest.mark.parametrize("field", ["kernel", "op", "launch"])
    def test_whose_unit_it_is_does_not(self, field):
        unit = expand(without_optional(), ARCHS)[0]
        other = dataclasses.replace(unit, **{field: 3 if field == "launch" else "other"})
        assert other.key(SOURCES, TOOLS) == unit.key(SOURCES, TOOLS)

    def test_true_is_not_one(self):
        unit = expand(without_optional(), ARCHS)[0]
        flag = dataclasses.replace(unit, constants=(("BLOCK", True),))
        number = dataclasses.replace(unit, constants=(("BLOCK", 1),))
        assert flag.key(SOURCES, TOOLS) != number.key(SOURCES, TOOLS)

    @pytest.mark.parametrize(
        ("old", "new"), [('["cdiv(N, BLOCK)"]', '["N"]'), ("{ BLOCK = 256 }", "{ BLOCK = 512 }")]
    )
    def test_changes_that_leave_a_unit_alone(self, old, new):
        """A grid is no part of an image, and neither is another candidate."""
        text = text_of()
        before, after = (expand(op_of(one), ARCHS)[0] for one in (text, text.replace(old, new)))
        assert before.key(SOURCES, TOOLS) == after.key(SOURCES, TOOLS)


STABLE = "d4a13647fd4eae87aa9f25aed8a90286612206a79e88e60a886af21db2f32b10"


class TestJson:
    def test_round_trip(self):
        for name in ("add", "rmsnorm", "gemm"):
            for op in example(name):
                for unit in expand(op, (*ARCHS, ImageTarget.parse("gfx942"))):
                    again = KernelUnit.from_json(json.loads(json.dumps(unit.to_json())))
                    assert again == unit
                    assert again.key(SOURCES, TOOLS) == unit.key(SOURCES, TOOLS)

    def test_what_is_no_unit(self):
        data = expand(without_optional(), ARCHS)[0].to_json()
        with pytest.raises(ValueError, match="not a unit: aligned missing or unknown"):
            KernelUnit.from_json({key: value for key, value in data.items() if key != "aligned"})
        with pytest.raises(ValueError, match="not a unit: extra missing or unknown"):
            KernelUnit.from_json({**data, "extra": 1})
        with pytest.raises(ValueError, match="`sm_9` is not an arch"):
            KernelUnit.from_json({**data, "target": "sm_9"})


class TestTargets:
    @pytest.mark.parametrize(
        ("text", "arch", "kind"),
        [
            ("sm_80", "sm_80", "cubin"),
            ("sm_90a", "sm_90a", "cubin"),
            ("sm_100f", "sm_100f", "cubin"),
            ("sm_120", "sm_120", "cubin"),
            ("compute_80", "sm_80", "ptx"),
            ("gfx942", "gfx942", "hsaco"),
            ("gfx90a", "gfx90a", "hsaco"),
            ("gfx1201", "gfx1201", "hsaco"),
        ],
    )
    def test_names(self, text, arch, kind):
        target = ImageTarget.parse(text)
        assert (target.arch, target.kind, str(target)) == (arch, kind, text)

    @pytest.mark.parametrize(
        "text",
        ["", "sm_", "sm_9", "sm90", "9.0", "sm_90b", "gfx", "gfx9", "gfx942:sramecc+", "SM_90"],
    )
    def test_no_names(self, text):
        with pytest.raises(ValueError, match="arch"):
            ImageTarget.parse(text)

    @pytest.mark.parametrize(
        ("arch", "wanted"),
        [
            ("8.0", ["sm_80"]),
            ("9.0a", ["sm_90a"]),
            ("10.0f", ["sm_100f"]),
            ("8.0+PTX", ["sm_80", "compute_80"]),
            ("gfx942", ["gfx942"]),
        ],
    )
    def test_of_build_toml(self, arch, wanted):
        assert [str(target) for target in targets_of_arch(arch)] == wanted

    @pytest.mark.parametrize(
        ("text", "arch", "means"),
        [
            ("sm_90a", "9.0", True),
            ("sm_90a", "9.0a", True),
            ("sm_90", "9.0a", False),
            ("sm_90", "8.0", False),
            ("compute_80", "8.0", True),
            ("gfx942", "gfx942", True),
            ("gfx942", "9.0", False),
            ("sm_90", "gfx942", False),
        ],
    )
    def test_meaning(self, text, arch, means):
        assert ImageTarget.parse(text).is_one_of((arch,)) is means


def test_a_candidate_with_the_aligned_image_alone():
    """Half the units of it; the other candidate has both."""
    configs = "[{ BLOCK = 128, num_warps = 4, aligned = true }, { BLOCK = 256 }]"
    units = expand(without_optional(configs=configs), ARCHS[:1])
    found = sorted({(dict(unit.constants)["BLOCK"], unit.aligned) for unit in units})
    assert found == [(128, True), (256, False), (256, True)]
    plain = [dataclasses.replace(unit, aligned=False) for unit in units if unit.aligned]
    candidate = Candidate((("BLOCK", 128),), (("num_warps", 4),), aligned=True)
    assert [is_compiled_for(candidate, unit) for unit in (units[0], plain[0])] == [True, False]


class TestOnlyWhatACallCanHave:
    """Constants that depend on each other, and conditions, leave few combinations."""

    K = 'K = { value = "K", choices = [64, 96, 128] }'

    @staticmethod
    def found(constants: str, **keys: str) -> list[dict[str, object]]:
        op = op_of(
            text_of(
                **{
                    "schema": '"k(Tensor x, Tensor y, Tensor? b, int n, bool f) -> Tensor"',
                    "shapes": '{ x = ["M", "K"], y = ["K", "N"], b = ["N"], out = ["M", "N"] }',
                    "dtypes": '"float16"',
                    "configs": "[{ BLOCK = 128 }]",
                    "constants": f"{{ {constants} }}",
                    **keys,
                }
            )
        )
        rows = [dict(unit.constants) for unit in expand(op, ARCHS[:1]) if unit.aligned]
        return [{key: value for key, value in row.items() if key != "BLOCK"} for row in rows]

    @pytest.mark.parametrize(
        "constants",
        [
            'P = { value = "next_pow2(K)", choices = [64, 128] }, {K}',
            '{K}, P = { value = "next_pow2(size(y, 0))", choices = [32, 64, 128] }',
            '{K}, P = { value = "next_pow2(size(x, -1))", choices = [32, 64, 128] }',
        ],
    )
    def test_choices_that_contradict_each_other(self, constants: str) -> None:
        found = self.found(constants.replace("{K}", self.K), **NO_OPTIONAL)
        pairs = sorted((one["K"], one["P"]) for one in found)
        assert pairs == [(64, 64), (96, 128), (128, 128)]

    def test_by_the_constants_name(self) -> None:
        constants = (
            'W = { value = "cdiv(K, 2)", choices = [32, 48] }, H = "W // 16", EVEN = "H % 2 == 0"'
        )
        assert self.found(constants, **NO_OPTIONAL) == [
            {"W": 32, "H": 2, "EVEN": True},
            {"W": 48, "H": 3, "EVEN": False},
        ]

    def test_through_let(self) -> None:
        keys = {"let": '{ p = "next_pow2(K)", q = "p + p" }', **NO_OPTIONAL}
        found = self.found(
            f'{self.K}, P = "p", Q = {{ value = "q", choices = [128, 256] }}', **keys
        )
        assert found == [
            {"K": 64, "P": 64, "Q": 128},
            {"K": 96, "P": 128, "Q": 256},
            {"K": 128, "P": 128, "Q": 256},
        ]

    def test_require_and_when(self) -> None:
        assert self.found(self.K, require='["K <= 96"]', **NO_OPTIONAL) == [{"K": 64}, {"K": 96}]
        configs = '[{ BLOCK = 1, when = "K > 64" }, { BLOCK = 2 }]'
        assert len(self.found(self.K, configs=configs, **NO_OPTIONAL)) == 5

    def test_require_leaves_out_tensors_that_are_none(self) -> None:
        constants = 'HAS = "has(b)"'
        assert self.found(constants, require='["has(b)"]') == [{"HAS": True}]
        found = self.found(constants, require='["has(b) or f"]')
        assert {one["HAS"] for one in found} == {True, False}

    @pytest.mark.parametrize("seed", range(20))
    def test_nothing_is_lost_that_a_call_can_have(self, seed: int) -> None:
        random = Random(seed)  # noqa: S311
        texts = ["K", "next_pow2(K)", "cdiv(K, 32)", "K % 64", "N", "min(K, N)", "K * N", "p // 2"]
        chosen = random.sample(texts, 3)
        calls = [(64 * random.randint(1, 4), 32 * random.randint(1, 5)) for _ in range(12)]
        let = {"p": "K + N"}

        def values(k: int, n: int) -> list[int]:
            names = {"K": k, "N": n}
            names |= {name: parse(text).evaluate(names) for name, text in let.items()}
            return [parse(text).evaluate(names) for text in chosen]

        wanted = {tuple(values(*call)) for call in calls if call[0] <= 192}
        lists = [sorted({values(*call)[at] for call in calls}) for at in range(3)]
        constants = ", ".join(
            f'C{at} = {{ value = "{text}", choices = {lists[at]} }}'
            for at, text in enumerate(chosen)
        )
        found = self.found(constants, let='{ p = "K + N" }', require='["K <= 192"]', **NO_OPTIONAL)
        assert wanted <= {tuple(one.values()) for one in found}


NO_OPTIONAL = {
    "schema": '"k(Tensor x, Tensor y, int n, bool f) -> Tensor"',
    "shapes": '{ x = ["M", "K"], y = ["K", "N"], out = ["M", "N"] }',
}
