"""Everything that can be wrong with a section, found without the DSL, with line and hint."""

from __future__ import annotations

import pytest

from tests.support.sections import BASE, HEAD, read, said, text_of

BASE_KEYS = [*BASE]
SCHEMA, SHAPES, DTYPES, GRID, CONFIGS, MORE = 6, 7, 8, 9, 10, 11


def one(text, line, words):
    """Exactly one issue, on that line."""
    found = said(text)
    assert found.startswith(f"{line}: "), found
    assert words in found, found
    assert len(read(text).issues) == 1, found


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("k(Tensor x, Tensor w)", "expected `->`, found the end (column 22)"),
        ("a::k(Tensor x, Tensor w) -> Tensor",
         "has a namespace\n  hint: kbuild gives each variant"),
        ("k.o(Tensor x, Tensor w) -> Tensor", "overloads are not supported"),
        ("k(Tensor x, Tensor w, Layout s) -> Tensor",
         "`s` is a `Layout`\n  hint: Python around the op"),
        ("k(Tensor x, Tensor w, str[] s) -> Tensor", "`s` is a `str[]`\n  hint: write one `str`"),
        ("k(Tensor x, Tensor w, ScalarType[] s) -> Tensor",
         "`s` is a `ScalarType[]`\n  hint: write one `ScalarType`"),
        ("k(Tensor x, Tensor w, Generator? s) -> Tensor", "is a `Generator?`\n  hint: pass a seed"),
        ("k(Tensor x, Tensor w, Stream s) -> Tensor", "`s` is a `Stream`\n  hint: an op launches"),
        ("k(Tensor x, Tensor w, complex s) -> Tensor", "`s` is a `complex`\n  hint: pass its two"),
        ("k(Tensor x, Tensor w, Device[] s) -> Tensor", "`s` is a `Device[]`\n  hint: write one"),
        ("k(Tensor x, Tensor w, Tensor[]? s) -> Tensor",
         "is a `Tensor[]?`\n  hint: write `Tensor?["),
        ("k(Tensor x, Tensor w, Tensor[] s) -> Tensor",
         "does not say how many tensors `s` has\n  hint: write `Tensor[2] s`, or use `s[0]`"),
        ("k(Tensor x, Tensor w, Tensor[65] s) -> Tensor",
         "`s` has 65 tensors; an op takes at most 64"),
        ("k(Tensor x, Tensor w, Tensor?[9] s) -> Tensor",
         "`s` has 9 tensors; an op takes at most 8"),
        ("k(Tensor x, Tensor w, Device s='cpu') -> Tensor", "write `Device? s=None`: that of"),
        ("k(Tensor x, Tensor w, Scalar s) -> Tensor", "`s` is a `Scalar`\n  hint: write `float`"),
        ("k(Tensor x, Tensor w, int lambda) -> Tensor", "`lambda` cannot be a name here"),
        ("k(Tensor x, Tensor w, int cdiv) -> Tensor", "`cdiv` cannot be a name here"),
        ("k(Tensor x, Tensor w, int _s) -> Tensor", "`_s` starts with `_`"),
        ("k(Tensor(a) x, Tensor w) -> Tensor", "`Tensor(a) x` shares memory with a result"),
    ],
)  # fmt: skip
def test_schemas(schema, words):
    one(text_of(schema=f'"{schema}"', shapes='{ x = ["N"], w = ["N"], out = "x" }'), SCHEMA, words)


@pytest.mark.parametrize(
    ("schema", "shapes", "words"),
    [
        ("k(Tensor(a!) x) -> Tensor(a!)", '{ x = ["N"], out = "x" }',
         "is one of the arguments\n  hint: `torch.compile` accepts such an op only"),
        ("k(Tensor x) -> int", '{ x = ["N"], out = "x" }', "a result is a `int`"),
        ("k(Tensor x) -> ()", '{ x = ["N"] }',
         "returns nothing and writes to nothing\n  hint: add a result, or mark"),
        ("k(int N) -> Tensor", '{ out = ["N"] }', "has no tensor argument"),
        ("k(Tensor? x) -> Tensor", "{ out = [3] }", "has no tensor argument that is never None"),
        ("k(Tensor?[2] x) -> Tensor", "{ out = [3] }",
         "has no tensor argument that is never None"),
        ("k(Tensor(a!) out) -> Tensor", '{ out = ["N"] }',
         "the result is called `out`, as an argument is"),
    ],
)  # fmt: skip
def test_schemas_with_their_shapes(schema, shapes, words):
    text = text_of(schema=f'"{schema}"', shapes=shapes, dtypes='"float32"', grid="[1]")
    one(text, SCHEMA, words)


def test_no_ops():
    found = said(HEAD.replace("[[kernel.k.op]]\n", ""))
    assert "describes no op\n  hint: add a `[[kernel.k.op]]`" in found


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ('{ x = ["N"], w = ["N"] }', "shapes: the result `out` has no shape\n  hint: e.g. `shapes"),
        ('{ x = ["N"], out = "y" }', "`y` is not a tensor argument"),
        ('{ x = ["...", "...", "N"], out = "x" }', "write it once"),
        ('{ x = "w", w = "x", out = ["n"] }', "refers to its own shape"),
        ('{ x = ["N"], out = ["M"] }', "`M`: `M` is unknown (column 1)"),
        ('{ x = ["N * 2"], out = "x" }', "`N * 2`: `N` is unknown (column 1)"),
        ('{ x = ["N"], b = ["K"], out = "x" }', "`K` is known only when `b` is given"),
        ('{ x = ["N"], out = ["eps"] }', "`eps` is a float"),
        ('{ x = ["N"], out = ["size(out, 0)"] }', "`out` is not allocated yet"),
        ('{ x = ["N"], out = ["size(x, 1)"] }', "`x` has 1 dimension (column 1)"),
        ('{ x = ["N"], out = ["capability()"] }', "cannot depend on `capability()`"),
        ('{ x = ["N", -1], out = "x" }', "a dimension cannot be negative"),
        ('{ x = ["N", 1.5], out = "x" }', "a dimension is a name, a number or an expression"),
        ('{ x = ["_N"], out = "x", w = ["N"] }', "`_N` starts with `_`"),
    ],
)
def test_shapes(shapes, words):
    found = said(text_of(shapes=shapes))
    assert words in found
    assert all(line[0] in " 7" or line.startswith(("9:", "10:")) for line in found.splitlines())


def test_a_shape_that_depends_on_the_device_through_let():
    shapes = '{ x = ["N"], w = ["N"], out = ["a"] }'
    text = text_of(let='{ b_ = "capability()", a = "b_ + 1" }', shapes=shapes)
    assert "kernel.k.op[0].shapes.out: a shape cannot depend on `capability()`" in said(text)


def test_a_dimension_that_is_an_argument_is_checked_not_named():
    text = text_of(shapes='{ x = ["n"], out = ["n"] }', grid='["n"]')
    assert read(text).ops[0].sizes == ()


@pytest.mark.parametrize(
    ("dtypes", "words"),
    [
        ("[]", "lists no dtypes"),
        ('["fp16"]', "`fp16` is not a dtype\n  hint: write `float16`"),
        ('["float16", "flota32"]', "`flota32` is not a dtype\n  hint: did you mean `float32`?"),
        ("16", "must be a list or a string or a table, not an integer"),
        ("[16]", "a dtype is written as a string"),
        ('{ x = "float16", w = "x", b = "x", out = 1 }', "must be a list of dtypes"),
        ('{ x = ["float16"], w = "x", out = "x" }', "no dtypes for `b`"),
        ('{ x = "w", w = "x", b = "x", out = "x" }', "`x` has its own dtype"),
        ('{ x = "float16", w = "x", b = "x", out = "y" }', "`y` is not a dtype"),
        (
            '{ x = "float16", w = "x", b = "x", out = ["float16", "float32"] }',
            "no argument determines the dtype of `out`",
        ),
    ],
)
def test_dtypes(dtypes, words):
    found = said(text_of(dtypes=dtypes))
    assert words in found
    assert {line.split(":")[0] for line in found.splitlines() if line[0] != " "} == {str(DTYPES)}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("grid", '["cdiv(N, BLOK)"]',
         "`BLOK` is unknown (column 9)\n  hint: did you mean `BLOCK`?"),
        ("grid", '["N", "N", "N", "N"]', "has 4 dimensions\n  hint: a grid has at most 3"),
        ("grid", "[]", "kernel.k.op: has no `grid`"),
        ("grid", "[-1]", "`-1` is negative"),
        ("grid", '["has(x)"]', "`x` is never None"),
        ("configs", "[{ BLOCK = 1, X = 2 }, { BLOCK = 2 }]",
         "lacks `X`, which another candidate sets"),
        ("configs", "[{ BLOCK = 1 }, { BLOCK = 1 }]", "is the same as candidate 1"),
        ("configs", '[{ BLOCK = 1, when = "M > 1" }, { BLOCK = 2 }]', "`M` is unknown"),
        ("configs", "[{ BLOCK = 1, when = 3 }, { BLOCK = 2 }]", "must be a condition in quotes"),
        ("configs", '[{ BLOCK = 1, archs = "9.0" }]', "must be a list of archs"),
        ("configs", '[{ BLOCK = 1, when = "BLOCK > 1" }, { BLOCK = 2 }]', "never holds"),
        ("configs", '[{ BLOCK = 0, when = "3 % BLOCK == 0" }, { BLOCK = 2 }]',
         "always gives division"),
        ("configs", '[{ BLOCK = 1, when = "N > 1" }]', "warning: kernel.k.op[0].configs: every"),
        ("configs", "[{ BLOCK = 1, aligned = 1 }]", "aligned: must be a boolean, not an integer"),
        ("configs", "[{ BLOCK = 1, aligned = true }]",
         "warning: kernel.k.op[0].configs: every candidate has `aligned`: calls that"),
        ("configs", '[{ BLOCK = 1, aligned = true }, { BLOCK = 2, when = "N > 2" }]',
         "warning: kernel.k.op[0].configs: every candidate has `when` or `aligned`: calls"),
        ("configs", '[{ BLOCK = 1, archs = ["90"] }]', "`90` is not an arch\n  hint: e.g. `9.0`"),
        ("constants", "{ X = nan }", "must be a finite number"),
        ("configs", '"auto"', "`auto` is neither a list nor `autotune`"),
        ("matrix", "{ BLOCK = [1] }", "`configs` is given too"),
        ("constants", '{ W = "N" }', "`N` differs from call to call, so the values"),
        ("constants", "{ W = { value = 1.5 } }", "is neither an expression with choices"),
        ("constants", '{ W = { value = "N", choice = [1] } }',
         "unknown key\n  hint: did you mean `choices`?"),
        ("constants", '{ W = { value = "N", choices = [1, 1] } }', "is neither an expression"),
        ("constants", "{ W = [1] }", "`triton` kernels take no tuple as a constant"),
        ("constants", "{ N = 1 }", "`N` is a dimension already"),
        ("constants", "{ BLOCK = 1 }", "`BLOCK` is a constant already"),
        ("args", '{ BLOCK = "N" }', "`BLOCK` is a constant as well"),
        ("args", "{ a = [] }", "is an empty tuple"),
        ("args", "{ a = [[1]] }", "args.a: must be a tensor or an expression, not a list"),
        ("args", '{ a = { tensor = "w", block = [true] } }', "must be a constant of the kernel"),
        ("args", '{ a = { tensor = "y", block = [1] } }', "a descriptor needs a tensor, not"),
        ("args", '{ a = { tensor = "w" } }', "args.a.block: lists 1 to 5 sizes"),
        ("args", '{ a = { tensor = "w", block = ["N"] } }', "`N` is not a constant (column 1)"),
        ("args", '{ a = { tensor = "w", block = [0] } }', "`0` is not a size"),
        ("args", '{ a = { tensor = "w", block = [8, 8] } }', "`w` has 1 dimensions, not 2"),
        ("args", '{ a = { tensor = "w", block = [8], padding = "one" } }', "must be `zero` or"),
        ("args", '{ a = { tensor = "w", block = [8], layout = { swizzle_byte_width = 16 } } }',
         "must be one of 0, 32, 64, 128, not `16`"),
        ("args", '{ a = { tensor = "w", block = [8], layout = { transposed = 1 } } }',
         "layout.transposed: must be true or false, not an integer"),
        ("args", '{ a = { tensor = "w", block = [8], layout = { transpose = true } } }',
         "unknown key\n  hint: did you mean `transposed`?"),
        ("args", '{ a = { tensor = "b", block = [8] } }',
         '`b` may be None\n  hint: use it in a separate launch, `when = "has(b)"`'),
        ("grid", '["numel(b)"]',
         "`numel(b)`: `b` may be None (column 1)\n  hint: test it first: `nu"),
        ("grid", '["size(b, 0) if has(b) or N > 1 else 1"]', "`b` may be None (column 1)"),
        ("require", '["has(b) or stride(b, 0) == 1"]', "`b` may be None (column 11)"),
        ("constants", '{ D = { dtype = "y" } }', "`y` is neither a tensor nor a dtype"),
        ("constants", '{ D = { dtype = "x", string = "x" } }', "keep it alone"),
        ("keep", '["BLOCK > 256"]', "no candidate meets the conditions"),
        ("keep", '["BLOK > 1"]', "`BLOK` is unknown (column 1)\n  hint: did you mean `BLOCK`?"),
        ("when", '"N > 1"', "unknown key"),
        ("configs", "[{ BLOCK = 1, num_warps = 3 }]", "num_warps: must be a power of two, not 3"),
        ("configs", "[{ BLOCK = 1, launch_pdl = 1 }]", "launch_pdl: must be a boolean"),
        ("configs", '[{ BLOCK = "a" }]', "`BLOCK` is not an integer (column 9)"),
        ("let", '{ a = "b_ + 1", b_ = "N" }', "`b_` is unknown"),
        ("let", '{ n = "N" }', "`n` is an argument of the op already"),
        ("let", '{ a-b = "N" }', "`a-b` cannot be used in an expression"),
        ("require", '["stride(out, 0) == 1"]', "`out` is not allocated yet"),
        ("contiguous", '["out"]', "`out` is not a tensor argument"),
        ("temporaries", '["t"]', "the temporary `t` has no shape"),
        ("temporaries", '["x"]', "`x` is a tensor already"),
        ("fallback", '"eager"', "must be `none` or `jit`, not `eager`"),
        ("function", '"a.b"', "`a.b` is not the name of a function"),
        ("ones", '["a", "a"]', "`a` is listed twice"),
        ("schem", '"k"', "unknown key\n  hint: did you mean `schema`?"),
    ],
)  # fmt: skip
def test_keys(key, value, words):
    text = text_of(**{key: value})
    assert words in said(text)
    assert not read(text).ops or "warning" in words


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ("{ BLOCK = [] }", "lists no values"),
        ("{ BLOCK = [1, 1] }", "`1` is listed twice"),
        ("{ BLOCK = [1], when = [1] }", "`when` belongs to a candidate"),
        ("{ BLOCK = [1], aligned = [true] }", "`aligned` belongs to a candidate"),
        ("{ BLOCK = [[1]] }", "must be a number, a boolean or a string"),
        ("{ BLOCK = [1], num_warps = [4, 5] }", "num_warps: must be a power of two, not 5"),
        ("{ BLOCK = 1 }", "must be a list, not an integer"),
        (
            f"{{ BLOCK = {list(range(100))}, A = {list(range(100))} }}",
            "makes 10000 candidates, more than 4096",
        ),
    ],
)
def test_matrices(matrix, words):
    assert words in said(text_of(configs=None, matrix=matrix))


LAUNCH = '[[kernel.k.op.launch]]\ngrid = ["N"]\n'


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ('"N"', "launch[0].when: `N`: is a number, not a condition"),
        ('"N > M"', "`M` is unknown"),
        ('"1 > 2"', "`1 > 2` never holds"),
        ('"2 > 1"', "`2 > 1` always holds\n  hint: remove it"),
        ('"numel(b) > 1"', "`b` may be None"),
        ('"BLOCK > 1"', "`BLOCK` is unknown"),
        ("1", "must be a string, not an integer"),
    ],
)
def test_conditions_of_launches(when, words):
    launch = f'[[kernel.k.op.launch]]\nfunction = "f"\ngrid = [1]\nwhen = {when}\n'
    assert words in said(text_of(launch, grid=None, configs=None))


def test_only_triton_kernels_take_tuples_and_descriptors():
    text = text_of(args='{ a = ["N"], d = { tensor = "w", block = [8] } }', configs=None, grid=None)
    text = text.replace("triton==3.9.0", "tilelang==0.1.15").replace('"triton"', '"tilelang"', 1)
    found = said(text)
    assert "args.a: `tilelang` kernels take no such argument: a tuple" in found
    assert "args.d: `tilelang` kernels take no such argument: a descriptor" in found


def test_none_and_tuples_are_not_for_every_language():
    text = text_of(args='{ a = "None" }', configs=None, grid=None)
    text = text.replace("triton==3.9.0", "tilelang==0.1.15").replace('"triton"', '"tilelang"', 1)
    assert "args.a: `tilelang` kernels take no None" in said(text)
    found = said(text_of(constants="{ T = [1, 2] }"))
    assert "constants.T: `triton` kernels take no tuple as a constant" in found
    cute = text_of(constants="{ T = [], U = [[1]] }", configs=None, grid=None)
    cute = cute.replace("triton==3.9.0", "nvidia-cutlass-dsl==4.8.1")
    found = said(cute.replace('"triton"', '"cute"', 1))
    assert "constants.T: is an empty tuple" in found
    assert "constants.U: must be a number, a boolean, None or a dtype" in found


def test_launch_tables_stand_alone():
    found = said(text_of(LAUNCH))
    assert "9: kernel.k.op[0].grid: belongs in the `launch` tables" in found
    assert "10: kernel.k.op[0].configs: belongs in the `launch` tables" in found
    assert "11: kernel.k.op[0].launch: has no `function`" in found


def test_a_later_op_is_judged_although_an_earlier_one_is_broken():
    text = text_of(schema=None) + text_of(grid='["M"]').removeprefix(HEAD[: HEAD.index("[[")])
    found = said(text)
    assert "kernel.k.op[0].schema: is missing" in found
    assert "kernel.k.op[1].grid: `M`: `M` is unknown" in found


def test_an_op_twice():
    text = text_of() + text_of().removeprefix(HEAD[: HEAD.index("[[")])
    one(text, 12, "the op `k` is described twice")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"triton"', '"tirton"',
         "2: kernel.k.language: `tirton` is not a language\n  hint: did you"),
        ('language = "triton"\n', "", "1: kernel.k.language: is missing\n  hint: allowed: `cute`"),
        ("triton==3.9.0", "triton>=3",
         "3: kernel.k.toolchain: `triton>=3` is not an exact version"),
        ("triton==3.9.0", "torch==2.0", "does not say which version of `triton` compiles this"),
        ('src = ["k.py"]\n', "", "names no Python source"),
    ],
)  # fmt: skip
def test_sections(old, new, words):
    assert words in said(text_of().replace(old, new, 1))


def test_autotune_is_tritons():
    text = text_of(configs='"autotune"').replace("triton==3.9.0", "nvidia-cutlass-dsl==4.8.1")
    text = text.replace('"triton"', '"cute"', 1)
    assert "`cute` kernels do not define candidates" in said(text)


ASKED = (
    '"k(Tensor x, Tensor w, str s, float e, ScalarType d, int? n, float? g, int[] l, float[] v, '
    'int[]? m) -> (Tensor out, Tensor? more)"'
)


def asked(**keys):
    given = {
        "schema": ASKED,
        "shapes": '{ x = ["N"], w = ["N"], out = "x", more = "x" }',
        "dtypes": '{ x = ["float16"], w = "x", d = ["float16", "float32"], out = "d", more = "x" }',
        "returned": "{ more = \"s == 'all'\" }",
    }
    return text_of(**{**given, **keys})


def test_other_arguments_are_fine():
    constants = (
        '{ S = { value = "s", choices = ["a", "b"] }, E = { value = "e", choices = [1, 0.5] }, '
        'D = { dtype = "d" }, M = { value = "n", choices = [1], none = true }, Z = "None", '
        'T = { value = "N % 2", choices = { 0 = "even", 1 = { dtype = "int8" } } }, '
        'B = { value = "m is None", choices = { true = { none = true }, false = 2.5 } }, '
        'R = "has(more)" }'
    )
    args = '{ a = "l[0]", b = "v[-1]", c = "g if g is not None else -1.5e-3", z = "None" }'
    require = '["len(l) > 1 and e != 0.5", "n > 1 if n is not None else d == \'float16\'"]'
    assert said(asked(constants=constants, args=args, require=require)) == ""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("require", '["s == 1"]', "`s` is a string"),
        ("require", '["n > 1"]', "`n` may be None"),
        ("require", '["len(m) > 1"]', "test it first: `len(m) if m is not None else 0`"),
        ("require", '["l[0] > g"]', "`g` is a float"),
        ("require", '["x[0] > 1"]', "`x` is a tensor (column 1)\n  hint: `size(x, 0)`"),
        ("require", '["l > 1"]', "`l` is a list (column 1)\n  hint: `l[0]`, `len(l)`"),
        ("require", "[\"e == 'x'\"]", "`e` is not an argument of the op that is a string or"),
        ("require", "[\"d == 'float61'\"]", "`float61` is not a dtype"),
        ("require", '["has(more)"]', "`more` is not allocated yet"),
        ("grid", '["numel(more)"]', "`more` may be None"),
        ("returned", "{ }", "does not say when `more` is returned"),
        ("returned", '{ more = "True", out = "f" }', "`out` is not a result that may be None"),
        ("args", '{ a = "s" }', "`s` is not a number"),
        ("args", '{ a = "g" }', "give a value for None: `g if g is not None else 1.0`"),
        ("args", '{ a = "e if e is not None else 1.0" }', "`e` is never None"),
        ("constants", '{ C = "s" }', "`s` differs from call to call"),
        ("constants", '{ C = { value = "s", choices = ["a", "a"] } }', "different strings"),
        ("constants", '{ C = { value = "N", choices = { a = 1 } } }',
         "`a` is not an integer, `true`"),
        ("constants", '{ C = { value = "N", choices = { 1 = [] } } }',
         "is not a value of a constant"),
        ("constants", '{ C = { value = "N", choices = [1], none = true } }', "that may be None"),
        ("constants", '{ C = { value = "x", choices = { 1 = 2 } } }',
         "not a value that can be chosen"),
        ("dtypes", '"float16"', "does not say which dtypes `d` can be"),
        ("dtypes", '{ x = ["float16"], w = "x", d = "x", out = "d", more = "x" }',
         "a list of dtypes"),
    ],
)  # fmt: skip
def test_other_arguments(key, value, words):
    found = said(asked(**{key: value}))
    assert words in found, found
    assert len(read(asked(**{key: value})).issues) == 1, found


@pytest.mark.parametrize("value", ['["float16"]', '{ choices = ["float16"], none = "b" }'])
def test_a_dtype_that_may_be_none(value):
    text = asked(
        schema='"k(Tensor x, Tensor? b, ScalarType? d) -> Tensor"',
        dtypes=f'{{ x = ["float16"], b = "x", d = {value}, out = "d" }}',
        shapes='{ x = ["N"], out = "x" }',
        returned=None,
    )
    assert (
        'the dtype for None is missing for `d`\n  hint: `{ choices = [ ... ], none = "x" }`'
        in said(text)
    )


class TestListsOfTensors:
    SCHEMA = '"k(Tensor[2] xs, Tensor?[2] ys, Tensor x, Tensor(a!)[] zs) -> Tensor"'
    KEYS = {  # noqa: RUF012 - read alone
        "schema": SCHEMA,
        "shapes": '{ xs = ["N"], ys = ["N"], x = ["N"], "zs[1]" = ["N"], out = "x" }',
        "grid": '["size(xs[1], 0)", "1 if ys[1] is None else size(ys[1], 0)"]',
        "contiguous": '["xs", "zs[0]"]',
        "zero": '["zs[0]"]',
    }

    def test_nothing(self):
        assert said(text_of(**self.KEYS)) == ""

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("shapes", '{ xs = ["N", "M / 2"], out = "x" }', "`M / 2`: `M / 2` has no meaning"),
            ("shapes", '{ xs = "y", out = "x" }', "`y` is not a tensor argument"),
            ("shapes", '{ "xs[2]" = ["N"], x = ["N"], out = "x" }', "but `xs[2]` is used"),
            ("shapes", '{ x = ["N"], out = "ys[0]", "zs[0]" = "x" }', "`ys[0]` may be None"),
            ("shapes", '{ ys = ["K"], x = ["N"], out = "x" }', "`K` is known only when `ys[0]` is"),
            ("grid", '["size(ys[0], 0)"]', "`ys[0]` may be None (column 1)\n  hint: test it first"),
            ("grid", '["numel(xs)"]',
             "`xs` is a list of tensors (column 1)\n  hint: `numel(xs[0])`"),
            ("grid", '["xs"]', "`xs` is a list of tensors (column 1)\n  hint: `numel(xs[0])`"),
            ("grid", '["xs[0]"]', "`xs[0]` is a tensor (column 1)\n  hint: `numel(xs[0])`"),
            ("grid", '["len(xs)"]', "`xs` has 2 tensors (column 1)\n  hint: `numel(xs[0])`"),
            ("grid", '["numel(xs[-1])"]',
             "`xs[-1]` is not a tensor (column 1)\n  hint: did you mean `xs[1]"),
            ("grid", '["numel(xs[x])"]', "a list index must be a number"),
            ("grid", '["1 if has(xs[0]) else 0"]', "`xs[0]` is never None"),
            ("zero", '["xs"]', "`xs[0]` is only read, so the op gives it no value"),
            ("zero", '["zs"]', "the argument `zs[1]` may have gaps"),
            ("contiguous", '["xz"]', "`xz` is not a tensor argument"),
            ("dtypes", '{ xs = ["float61"], x = "float16", ys = "x" }', "`float61` is not a dtype"),
        ],
    )  # fmt: skip
    def test_keys(self, key, value, words):
        found = said(text_of(**{**self.KEYS, key: value}))
        assert words in found
        line = 6 + [*BASE_KEYS, "contiguous", "zero"].index(key)
        line = 6 if "is used" in words else line
        assert any(one.startswith(f"{line}: ") and words[:9] in one for one in found.splitlines())

    def test_defaults(self):
        schema = '"k(Tensor x, Tensor?[] ys=[]) -> Tensor"'
        text = text_of(schema=schema, shapes='{ x = ["N"], "ys[0]" = ["N"], out = "x" }')
        one(text, SCHEMA, "`Tensor?[] ys=[]`: Torch takes no default for a list of tensors")

    def test_what_is_said_of_all_is_wrong_once(self):
        text = text_of(**{**self.KEYS, "shapes": '{ xs = ["..", "N"], x = ["N"], out = "x" }'})
        assert said(text).count("kernel.k.op[0].shapes.xs: ") == 1

    def test_a_kernel_without_tuples(self):
        text = text_of(**self.KEYS, args='{ all = "xs" }').replace("triton", "tilelang")
        assert "`tilelang` kernels take no such argument: a tuple" in said(text)


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        (
            '[{ BLOCK = "None" }]',
            "`BLOCK` may be None (column 9)\n  hint: test it first: `BLOCK if",
        ),
        ("[{ BLOCK = { none = true } }, { BLOCK = 2 }]", "`BLOCK` may be None (column 9)"),
        ("[{ BLOCK = { none = false } }]", "must be a number, a boolean or a string, not a table"),
        ("[{ BLOCK = { string = 1.5 } }]", "must be a number, a boolean or a string, not a table"),
        ('[{ BLOCK = 1 }, { BLOCK = 1, maxnreg = "None" }]', "is the same as candidate 1"),
        ('[{ BLOCK = 1, num_warps = "four" }]', "must be an integer that is not negative"),
        ('[{ BLOCK = 1, when = "BLOCK is None" }]', "`BLOCK` is never None"),
        (
            '[{ BLOCK = 1, A = 2, when = "A is None" }, { BLOCK = 2, A = "None" }]',
            "`A is None` never holds with these constants",
        ),
    ],
)
def test_candidates_with_none(configs, words):
    assert words in said(text_of(configs=configs))


PROJECTED = (
    '[{ schema = "p(Tensor x, Tensor w, Tensor? b, int n=1, float eps=1e-6, bool f=False)'
    ' -> Tensor", results = ["out"] }]'
)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"projections": PROJECTED.replace('"out"', '"other"')}, "`other` is not a result"),
        ({"projections": PROJECTED.replace("Tensor w, ", "")}, "has other arguments than the op"),
        ({"projections": PROJECTED.replace('["out"]', "[]")}, "are not as many as the schema says"),
        ({"projections": PROJECTED.replace("p(", "k(")}, "the op `k` is described twice"),
        ({"projections": PROJECTED, "fallback": '"jit"'}, "cannot fall back on the DSL"),
    ],
)
def test_projections(keys, words):
    assert words in said(text_of(**keys))
    assert said(text_of(projections=PROJECTED)) == ""
