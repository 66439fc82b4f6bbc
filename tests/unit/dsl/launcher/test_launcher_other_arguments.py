"""Arguments that are neither tensors nor plain numbers: strings, dtypes, lists, None."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kbuild.dsl.launcher.resolved_kernel import ResolvedOp
from kbuild.ops.fake_kernels import fake_source
from tests.support.launcher.functions import Functions, library, without_fallback
from tests.support.launcher.launched import Driver, Kernel, extension, files_of, launched, ops_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    # Torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
SECTION = '''
[kernel.other]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]

[[kernel.other.op]]
schema = "act(Tensor x, str activation='gelu', str? mode=None) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
grid = ["2 if activation == 'silu' else 1", "1 if mode is None else 3"]
require = ["activation != 'silu' or mode is None"]
[kernel.other.op.constants]
ACT = { value = "activation", choices = ["gelu", "silu", "tanh"] }
MODE = { value = "mode", choices = { fast = 1, "ünd so" = "slow" }, none = true }

[[kernel.other.op]]
schema = "floats(Tensor x, float eps=1e-6, float? scale=None, float[] weights=[0.5]) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
grid = ["1 + len(weights)"]
args.scale = "scale if scale is not None else 1.0"
args.first = "weights[0]"
args.last = "weights[-1]"
constants = { EPS = { value = "eps", choices = [1e-5, 1e-6] }, HAS = "scale is not None" }

[[kernel.other.op]]
schema = "cast(Tensor x, ScalarType dtype, *, ScalarType? acc=None) -> Tensor"
shapes = { x = ["N"], out = "x" }
grid = ["2 if dtype == 'bfloat16' else 1"]
constants = { OUT = { dtype = "dtype" }, ACC = { dtype = "acc" } }
[kernel.other.op.dtypes]
x = ["float16", "float32"]
dtype = ["float32", "bfloat16"]
acc = { choices = ["float16", "float32"], none = "x" }
out = "dtype"

[[kernel.other.op]]
schema = """lists(Tensor x, int[] pad, int[2] step=1, bool[] flags=[], SymInt? window=None,
  int[]? more=None) -> Tensor"""
shapes = { x = ["N"], out = ["N + pad[0] + pad[-1]"] }
dtypes = ["float16"]
grid = ["step[0]", "step[1]", "3 if len(flags) > 1 and flags[1] else 1"]
require = ["len(pad) == 2"]
args = { left = "pad[0]", window = "window if window is not None else -1" }
constants.WIN = { value = "window", choices = [64, 128], none = true }
constants.MORE = "more is not None"

[[kernel.other.op]]
schema = "many(Tensor[] xs, Tensor?[3] more, int n=1) -> Tensor"
shapes = { xs = ["M", "N"], "xs[1]" = ["K", "N"], more = ["N"], out = ["M + size(xs[1], 0)", "N"] }
dtypes = { xs = ["float16", "float32"], more = "float32", out = "xs[1]" }
contiguous = ["xs[1]"]
require = ["has(more[0]) or not has(more[1])", "more[1] is not None or more[2] is None"]
grid = ["K", "size(more[1], 0) if has(more[1]) else 1"]
args = { third = "more[2]", rows = "numel(xs[0]) // max(N, 1)" }
constants = { HAS = "has(more[0])", KIND = { dtype = "xs[0]" } }

[[kernel.other.op]]
schema = "small(Tensor[2] xs, Tensor?[2] more, int[] n=[1]) -> Tensor"
shapes = { xs = ["N"], more = ["N"], out = "xs[0]" }
dtypes = ["float16"]
configs = [{ BLOCK = 1, when = "N <= 4" }]
grid = [1]
fallback = "jit"

[[kernel.other.op]]
schema = "fill_all(Tensor(a!)[2] ys, Tensor(b!)?[1] z) -> ()"
shapes = { ys = ["N"], z = ["N"] }
dtypes = { ys = ["float16"], "ys[1]" = "float32", z = "float16" }
contiguous = ["ys", "z"]
fill = { "ys[1]" = 2.5 }
zero = ["z"]
grid = [1]

[[kernel.other.op]]
schema = "split(Tensor x) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
configs = [
    { SPLIT = 4, MODE = "None", maxnreg = "None", when = "N > 16 and SPLIT is not None" },
    { SPLIT = "None", MODE = { string = "None" }, when = "SPLIT is None" },
]
grid = ["SPLIT if SPLIT is not None else 1", "2 if MODE is None else 3"]
args = { parts = "SPLIT * 2 if has(SPLIT) else -1" }
constants = { WIDE = "4 * SPLIT if SPLIT is not None else 8" }

[[kernel.other.op]]
schema = "moved(Tensor x, Device? device=None, *, Device? other=None) -> Tensor"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
grid = ["1 if device is None else 2"]

[[kernel.other.op]]
schema = "parts(Tensor x) -> Tensor"
shapes = { x = ["N"], out = ["2 * sm_count()", "N"] }
dtypes = ["float16"]
grid = ["sm_count()"]

[[kernel.other.op]]
schema = "maybe(Tensor x, Tensor? b, bool with_lse=False) -> (Tensor out, Tensor? lse)"
shapes = { x = ["N"], b = ["N"], out = "x", lse = ["2 * N"] }
dtypes = ["float16"]
grid = ["size(lse, 0) if has(lse) else 1"]
returned = { lse = "with_lse or has(b)" }
constants = { HAS = "has(lse)" }
'''
_NUMBERS = ("xs_0_stride_0", "stride_xs_1n", "rows")
KERNELS = {
    "act": Kernel(("x", "out", "ACT!", "MODE!")),
    "floats": Kernel(("x", "out", "eps", "scale", "first", "last", "EPS!", "HAS!"), floats="fp64"),
    "cast": Kernel(("x", "out", "OUT!", "ACC!")),
    "parts": Kernel(("x", "out")),
    "maybe": Kernel(("x", "b", "out", "lse", "HAS!")),
    "many": Kernel(
        (*("xs_0", "xs_1_ptr", "more_0", "more_1", "third", "out_ptr"), *_NUMBERS, "HAS!", "KIND!")
    ),
    "split": Kernel(("x", "out", "parts", "SPLIT!", "MODE!", "WIDE!")),
    "moved": Kernel(("x", "out")),
    "small": Kernel(("xs", "more", "out", "BLOCK!")),
    "fill_all": Kernel(("ys", "z_0")),
    "lists": Kernel(("x", "out", "left", "window", "WIN!", "MORE!")),
}
HOSTS = ["torch"]
if importlib.util.find_spec("tvm_ffi"):
    HOSTS.append("tvm-ffi")


def other(*, returned: bool = True) -> tuple[ResolvedOp, ...]:
    ops = [op for op in ops_of(SECTION) if returned or not (op.returned or op.name == "moved")]
    made = tuple(launched(op, KERNELS, ("sm_90a",)) for op in ops)
    return made if returned else without_fallback(made)


@pytest.fixture(scope="module")
def loaded_by_torch(driver: Driver, tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("other")
    path = extension(files_of("other", other()), folder, "_other_tests")
    torch.ops.load_library(str(path))
    return torch.ops._other_tests


@pytest.fixture(scope="module", params=HOSTS)
def loaded(request: Any, driver: Driver, tmp_path_factory: Any) -> Any:
    if request.param == "torch":
        return request.getfixturevalue("loaded_by_torch")
    ops = other(returned=False)
    files = files_of("other", ops, framework="tvm-ffi")
    path = library(files, tmp_path_factory.mktemp("other"), "other")
    return Functions(path, [op.spec for op in ops])


@pytest.fixture
def ops(loaded: Any, driver: Driver) -> Iterator[Any]:
    driver.said()
    yield loaded
    driver.library.fake_forget()


@pytest.fixture
def torch_ops(loaded_by_torch: Any, driver: Driver) -> Iterator[Any]:
    """The ops of Torch alone: TVM-FFI has no fallback, no devices and no fake kernels."""
    driver.said()
    yield loaded_by_torch
    driver.library.fake_forget()


X = torch.zeros(8).half()


def image(driver: Driver) -> tuple[str, tuple[int, ...]]:
    (record,) = driver.launches()
    return record.image, record.grid


class TestStrings:
    @pytest.mark.parametrize(
        ("arguments", "words", "grid"),
        [
            ((), "ACT=gelu MODE=None", (1, 1)),
            (("silu",), "ACT=silu MODE=None", (2, 1)),
            (("tanh", "fast"), "ACT=tanh MODE=1", (1, 3)),
            (("gelu", "ünd so"), "ACT=gelu MODE=slow", (1, 3)),
        ],
    )
    def test_choose(self, ops, driver, arguments, words, grid):
        ops.act(X, *arguments)
        found, blocks = image(driver)
        assert words in found
        assert blocks[:2] == grid

    def test_what_no_image_is_for(self, ops):
        with pytest.raises(RuntimeError) as told:
            ops.act(X, "relu")
        assert (
            "no image of `act` for this call: it needs ACT = another value, MODE = None; there are "
            "images for ACT = 'gelu', 'silu', 'tanh'; MODE = 1, 'slow', None"
        ) in str(told.value)

    def test_require(self, ops):
        with pytest.raises(RuntimeError, match="`activation != 'silu' or mode is None`"):
            ops.act(X, "silu", "fast")


class TestFloats:
    @pytest.mark.parametrize(
        ("arguments", "words", "values"),
        [
            ((), "EPS=1e-06 HAS=False", (1e-6, 1.0, 0.5, 0.5)),
            ((1e-5, 3, [1.0, 2.5]), "EPS=1e-05 HAS=True", (1e-5, 3.0, 1.0, 2.5)),
        ],
    )
    def test_values(self, ops, driver, arguments, words, values):
        ops.floats(X, *arguments)
        (record,) = driver.launches()
        assert words in record.image
        passed = [struct_of(one) for one in record.parameters[2:6]]
        assert tuple(passed) == values
        assert record.grid[0] == 1 + len(arguments[2] if len(arguments) > 2 else [0.5])

    def test_no_image(self, ops):
        with pytest.raises(RuntimeError, match=r"EPS = another value, HAS = 0; .*1e-05, 1e-06"):
            ops.floats(X, 2e-6)

    def test_beyond_the_list(self, ops):
        with pytest.raises(RuntimeError, match=r"`weights\[0\]` is used.* has 0 items"):
            ops.floats(X, 1e-6, None, [])


class TestDtypes:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("acc", [None, torch.float16, torch.float32])
    @pytest.mark.parametrize("own", [torch.float16, torch.float32])
    def test_values(self, ops, driver, dtype, acc, own):
        out = ops.cast(X.to(own), dtype, acc=acc)
        found, grid = image(driver)
        assert out.dtype == dtype
        assert f"OUT={str(dtype)[6:]} ACC={str(acc or own)[6:]}" in found
        assert grid[0] == (2 if dtype == torch.bfloat16 else 1)

    @pytest.mark.parametrize(
        ("dtype", "acc", "words"),
        [
            (torch.float16, None, "`dtype` is float16; it takes float32 or bfloat16"),
            (torch.float8_e4m3fn, None, "`dtype` is float8_e4m3fn; it takes float32 or bfloat16"),
            (torch.float32, torch.int8, "`acc` is int8; it takes float16 or float32"),
        ],
    )
    def test_refusals(self, ops, dtype, acc, words):
        with pytest.raises(RuntimeError, match=words):
            ops.cast(X, dtype, acc=acc)


class TestLists:
    @pytest.mark.parametrize(
        ("arguments", "words", "grid", "left"),
        [
            (([1, 2], [3, 4]), "WIN=None MORE=False", (3, 4, 1), 1),
            (([0, 5], [1, 1], [False, True], 64), "WIN=64 MORE=False", (1, 1, 3), 0),
            (([7, 0], [1, 2], [True], 128, []), "WIN=128 MORE=True", (1, 2, 1), 7),
        ],
    )
    def test_values(self, ops, driver, arguments, words, grid, left):
        out = ops.lists(X, *arguments)
        (record,) = driver.launches()
        assert out.shape == (8 + sum(arguments[0]),)
        assert words in record.image
        assert record.grid == grid
        assert record.integer(2) == left
        assert record.integer(3) == (arguments[3] if len(arguments) > 3 else -1)

    def test_their_length(self, ops):
        with pytest.raises(
            RuntimeError, match=r"must have `len\(pad\) == 2` \(`len\(pad\)` is 3\)"
        ):
            ops.lists(X, [1, 2, 3], [1, 1])

    def test_no_image(self, ops):
        with pytest.raises(RuntimeError, match="WIN = another value"):
            ops.lists(X, [1, 2], [1, 1], [], 65)

    def test_what_the_host_lends_is_given_back(self, ops, driver):
        def called(count: int) -> int:
            for _ in range(count):
                ops.lists(X, [1, 2], [3, 4], [True], 64, [5, 6, 7])
                ops.act(X, "tanh", "fast")
                ops.floats(X, 1e-5, 2.0, [1.0, 2.0])
                ops.cast(X, torch.float32, acc=torch.float16)
            return bytes_in_use()

        driver.library.fake_quiet(1)
        before = called(300)
        after = called(3000)
        driver.library.fake_quiet(0)
        assert after - before < 3000 * 16


class TestListsOfTensors:
    XS = (torch.ones(2, 4).half().t().contiguous().t(), torch.ones(3, 4).half())
    B = torch.ones(4)

    @pytest.mark.parametrize(
        ("more", "grid", "absent"),
        [
            ([], (3, 1), " no-more[0] no-more[1] no-more[2]"),
            ([B], (3, 1), " no-more[1] no-more[2]"),
            ([B, B], (3, 4), " no-more[2]"),
            ([B, B, None], (3, 4), " no-more[2]"),
            ([B, B, B.clone()], (3, 4), ""),
        ],
    )
    def test_values(self, ops, driver, more, grid, absent):
        out = ops.many(list(self.XS), more)
        (record,) = driver.launches()
        assert out.shape == (5, 4)
        assert record.grid[:2] == grid
        assert absent in record.image
        assert f"HAS={bool(more)} KIND=float16" in record.image
        given = [one for one in more if one is not None]
        pointers = [*self.XS, *given, out]
        expected = [one.data_ptr() for one in pointers]
        assert [record.integer(at) for at in range(len(pointers))] == expected
        last = len(pointers)
        assert [record.integer(at) for at in range(last, last + 3)] == [1, 1, 2]

    @pytest.mark.parametrize(
        ("xs", "more", "words"),
        [
            (XS[:1], [], "`many`: `xs` must have 2 tensors, but it has 1"),
            ((*XS, XS[0]), [], "`many`: `xs` must have 2 tensors, but it has 3"),
            (XS, [None] * 4, "`many`: `more` must have up to 3 tensors, but it has 4"),
            ((XS[0], XS[1].float()), [], "`xs[1]` is float32, but `xs[0]` is float16"),
            ((X.int(), X), [], "`xs[0]` is int32; it takes float16 or float32"),
            ((XS[0], XS[1][0]), [], "`xs[1]` must have 2 dimensions, but its shape is [4]"),
            ((XS[0], XS[1][:, :3]), [], "dimension 1 of `xs[1]` must be `N`, which is 4"),
            ((XS[1], XS[0]), [], "`xs[1]` must be contiguous"),
            (XS, [B.half()], "`more[0]` is float16; it takes float32"),
            (XS, [None, B], "the call must have `has(more[0]) or not has(more[1])`"),
            (XS, [B, None, B], "the call must have `more[1] is not None or more[2] is None`"),
        ],
    )
    def test_refusals(self, ops, driver, xs, more, words):
        with pytest.raises(RuntimeError) as told:
            ops.many(list(xs), more)
        assert words in str(told.value)
        assert driver.launches() == []

    def test_each_lies_on_the_device(self, ops, driver):
        elsewhere = torch.ones(3, 4).half()
        driver.place(elsewhere, 1)
        with pytest.raises(RuntimeError, match=r"`xs\[1\]` is on device 1, `xs\[0\]` on device 0"):
            ops.many([self.XS[0], elsewhere], [])

    @pytest.mark.parametrize("z", [[], [None], [torch.ones(4).half()]])
    def test_those_that_are_written_to(self, ops, driver, z):
        ys = [torch.ones(4).half(), torch.ones(4)]
        ops.fill_all(ys, z)
        (record,) = driver.launches()
        assert [record.integer(at) for at in (0, 1)] == [one.data_ptr() for one in ys]
        assert ys[0].tolist() == [1.0] * 4
        assert ys[1].tolist() == [2.5] * 4
        assert all(one is None or one.tolist() == [0.0] * 4 for one in z)

    def test_what_the_host_lends_is_given_back(self, ops, driver):
        def called(count: int) -> int:
            for _ in range(count):
                ops.many(list(self.XS), [self.B, self.B])
                with pytest.raises(RuntimeError):
                    ops.many([*self.XS, *self.XS], [])
            return bytes_in_use()

        driver.library.fake_quiet(1)
        before = called(100)
        after = called(1000)
        driver.library.fake_quiet(0)
        assert after - before < 1000 * 16

    def test_the_fallback_gets_the_list(self, torch_ops, driver):
        with torch.library._scoped_library("_other_tests", "FRAGMENT") as library:
            library.define("_small_jit(Tensor[2] xs, Tensor?[2] more, int[] n=[1]) -> Tensor")

            def run(xs, more, n):
                return xs[0] + 2 * xs[1] + sum(n) + (0 if more[1] is None else more[1])

            library.impl("_small_jit", run, "CompositeExplicitAutograd")
            y = torch.arange(8).half()
            for _ in range(50):
                assert torch.equal(torch_ops.small([X, y], [None, X + 1], [3]), 2 * y + 4)
                assert torch.equal(torch_ops.small([X, y], [None, None], [3]), 2 * y + 3)
            assert driver.launches() == []
        torch_ops.small([X[:4], X[:4]], [])
        assert len(driver.launches()) == 1


class TestDevices:
    @pytest.fixture
    def ops(self, torch_ops):
        return torch_ops

    @pytest.mark.parametrize("device", [None, torch.device("cpu")])
    def test_that_of_the_tensors(self, ops, driver, device):
        ops.moved(X, device, other=device)
        assert image(driver)[1][0] == (1 if device is None else 2)

    @pytest.mark.parametrize("device", [torch.device("cuda"), torch.device("cuda:1")])
    def test_another_one(self, ops, driver, device):
        with pytest.raises(RuntimeError) as told:
            ops.moved(X, other=device)
        words = "`moved`: `other` is a different device than that of `x`, where the op runs"
        assert words in str(told.value)
        assert driver.launches() == []


class TestCandidatesWithNone:
    @pytest.mark.parametrize(
        ("size", "words", "grid", "parts"),
        [
            (32, "SPLIT=4 MODE=None WIDE=16 x:fp16", (4, 2, 1), 8),
            (8, "SPLIT=None MODE=None WIDE=8 x:fp16", (1, 3, 1), -1),
        ],
    )
    def test_values(self, ops, driver, size, words, grid, parts):
        ops.split(torch.zeros(size).half())
        (record,) = driver.launches()
        assert words in record.image
        assert record.grid == grid
        assert record.integer(2) == parts


def test_multiprocessors_in_a_shape(ops, driver):
    out = ops.parts(X)
    (record,) = driver.launches()
    assert out.shape == (2 * record.grid[0], 8)
    if isinstance(ops, Functions):
        assert ops.module["_kbuild_sm_count"](0) == record.grid[0]


class TestResultsThatMayBeNone:
    @pytest.fixture
    def called(self, torch_ops):
        return torch_ops.maybe

    @pytest.mark.parametrize("with_lse", [True, False])
    @pytest.mark.parametrize("b", [None, X])
    def test_values(self, called, driver, b, with_lse):
        out, lse = called(X, b, with_lse)
        found, grid = image(driver)
        assert out.shape == (8,)
        assert (lse is not None) == (with_lse or b is not None)
        assert ("no-lse" in found) == (lse is None)
        assert f"HAS={lse is not None}" in found
        assert grid[0] == (1 if lse is None else 16)
        assert lse is None or lse.shape == (16,)

    def test_tvm_ffi_has_none(self):
        maybe = [one for one in other() if one.spec.name == "maybe"]
        with pytest.raises(ValueError, match="`maybe`: a result that may be None cannot"):
            files_of("other", maybe, framework="tvm-ffi")

    def test_tvm_ffi_has_no_devices(self):
        moved = [one for one in other() if one.spec.name == "moved"]
        with pytest.raises(ValueError, match=r"`moved`: `Device.* device.*` cannot be passed"):
            files_of("other", moved, framework="tvm-ffi")


class TestFakes:
    """What `torch.compile` is told agrees with what is launched."""

    @pytest.fixture
    def faked(self, torch_ops):
        names = {"torch": torch}
        for op in other():
            register = f"torch.library.register_fake('_other_tests::{op.spec.name}')"
            exec(fake_source(op.spec, register), names)  # noqa: S102 - what kbuild writes
        return torch_ops

    def test_opcheck(self, faked):
        checks = ("test_schema", "test_autograd_registration", "test_faketensor")
        for op, arguments, named in (
            (faked.act, (X, "tanh", "fast"), {}),
            (faked.floats, (X, 1e-5, 2.0, [1.0, 2.0]), {}),
            (faked.cast, (X, torch.bfloat16), {"acc": torch.float32}),
            (faked.cast, (X, torch.bfloat16), {}),
            (faked.lists, (X, [1, 2], [3, 4], [True], 64, None), {}),
            (faked.many, (list(TestListsOfTensors.XS), [TestListsOfTensors.B]), {}),
            (faked.fill_all, ([X.clone(), X.float()], [None]), {}),
            (faked.maybe, (X, None, True), {}),
            (faked.maybe, (X, None, False), {}),
        ):
            torch.library.opcheck(op.default, arguments, named, test_utils=checks)

    def test_compile(self, faked):
        @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
        def model(x, pad):
            y = faked.act(faked.floats(x, 1e-6), "silu")
            lists = faked.lists(x, [pad, 1], [1, 1], [], 64)
            _, lse = faked.maybe(x, None)
            return faked.cast(y, torch.bfloat16), lists, lse, faked.maybe(x, x)[1]

        for size in (3, 5):
            cast, lists, none, lse = model(torch.zeros(size).half(), size)
            assert none is None
            assert lse.shape == (2 * size,)
            assert cast.dtype == torch.bfloat16
            assert lists.shape == (2 * size + 1,)


def bytes_in_use() -> int:
    """What the C library has given out and not got back."""

    class Facts(ctypes.Structure):
        _fields_ = tuple((f"field_{at}", ctypes.c_size_t) for at in range(10))

    gc.collect()
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Facts
    return int(function().field_7)


def struct_of(raw: bytes) -> float:
    return float(struct.unpack("d", raw)[0])
