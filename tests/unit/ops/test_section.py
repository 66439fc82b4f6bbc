"""What a good section means."""

from __future__ import annotations

from tests.support.sections import op_of, text_of


def test_dtypes_by_tensor():
    table = '{ x = ["float16", "bfloat16"], w = ["float32", "float16"], b = "w", out = "x" }'
    sets = op_of(text_of(dtypes=table)).dtype_sets()
    assert len(sets) == 4
    assert all(one["b"] == one["w"] and one["out"] == one["x"] for one in sets)
    assert {(one["x"], one["w"]) for one in sets} == {
        (x, w) for x in ("float16", "bfloat16") for w in ("float32", "float16")
    }


def test_a_tensor_that_may_be_none_does_not_say_the_results_dtype():
    schema = '"k(Tensor? b, Tensor x) -> Tensor"'
    op = op_of(text_of(schema=schema, shapes='{ x = ["N"], out = "x" }'))
    assert {rule.tensor: rule.like for rule in op.dtypes} == {"x": "", "b": "x", "out": "x"}


def test_a_matrix_is_every_combination():
    op = op_of(text_of(configs=None, matrix="{ BLOCK = [64, 128], num_warps = [4, 8] }"))
    assert [dict((*c.constants, *c.options)) for c in op.launches[0].candidates] == [
        {"BLOCK": block, "num_warps": warps} for block in (64, 128) for warps in (4, 8)
    ]


def test_a_predicate_knows_its_candidates_constants():
    configs = '[{ BLOCK = 128, when = "N % BLOCK == 0" }, { BLOCK = 1, when = "BLOCK < 2" }]'
    first, second = op_of(text_of(configs=configs)).launches[0].candidates
    assert first.when.names() == {"N"}
    assert first.when.evaluate({"N": 256}) == 1
    assert second.when is None, "it always holds"


def test_the_layout_of_a_descriptor():
    layout = "{ transposed = true, swizzle_byte_width = 64 }"
    args = f'{{ d = {{ tensor = "w", block = [64], layout = {layout} }} }}'
    (launch,) = op_of(text_of(args=args)).launches
    ((_, source),) = launch.args
    assert source.layout == (("swizzle_byte_width", 64), ("transposed", True))


def test_what_depends_on_the_call_goes_into_the_predicate():
    configs = '[{ BLOCK = 128, when = "n > 1" }, { BLOCK = 256 }]'
    (launch,) = op_of(text_of(configs=configs, keep='["BLOCK < 200 or N > BLOCK"]')).launches
    first, second = launch.candidates
    assert first.when.names() == {"n"}
    assert [second.when.evaluate({"N": value}) for value in (256, 257)] == [0, 1]
    (launch,) = op_of(text_of(configs=configs, keep='["N % BLOCK == 0"]')).launches
    when = launch.candidates[0].when
    calls = [{"n": n, "N": size} for n in (1, 2) for size in (127, 128)]
    assert [when.evaluate(call) for call in calls] == [0, 0, 0, 1]


LAUNCHES = """
[[kernel.k.op.launch]]
function = "with_b"
when = "hb and N > 1"
args = { d = { tensor = "b", block = [16] }, s = "size(b, 0)" }
grid = ["numel(b)"]
[[kernel.k.op.launch]]
function = "without_b"
when = "not (hb and N > 1)"
grid = ["numel(b) if hb else 1"]
"""


def test_launches_with_conditions():
    """Where `when` says that a tensor is there, it may be asked about; names of `let` count."""
    op = op_of(text_of(LAUNCHES, let='{ hb = "has(b)" }', grid=None, configs=None))
    first, second = op.launches
    assert str(first.when) == "hb and N > 1"
    assert [str(source) for _, source in first.args] == ["descriptor(b, [16], zero)", "size(b, 0)"]
    assert second.when.evaluate({"hb": 1, "N": 1}) == 1


def test_questions_behind_a_guard():
    op = op_of(
        text_of(
            let='{ m = "numel(b) if has(b) else 1", l = "0 if not has(b) else dim(b)" }',
            require='["not has(b) or stride(b, -1) == 1", "size(b, 0) > 1 if has(b) else N > 1"]',
            shapes='{ x = ["...", "N"], w = ["N"], b = ["N", "size(b, 0) * 2"], out = "x" }',
        )
    )
    assert len(op.let) == 2
