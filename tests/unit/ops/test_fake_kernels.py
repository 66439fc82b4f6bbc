"""Fake kernels under Torch: the results of a dummy implementation, without running it."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from kbuild.ops.fake_kernels import fake_source
from tests.support.sections import example, op_of, text_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # Torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
NAMESPACES = iter(range(1000))


@pytest.fixture
def register():
    """Registers an op with a Python implementation and its generated fake kernel."""
    kept = []

    def op_with(op, implementation):
        namespace = f"kbuild_fake_{next(NAMESPACES)}"
        library = torch.library.Library(namespace, "FRAGMENT")
        kept.append(library)
        library.define(str(op.schema))
        library.impl(op.name, implementation, "CPU")
        scope = {"torch": torch, "add_op_namespace_prefix": lambda name: f"{namespace}::{name}"}
        exec(fake_source(op), scope)  # noqa: S102 - generated text is what is tested
        return getattr(getattr(torch.ops, namespace), op.name)

    yield op_with
    for library in kept:
        library._destroy()


def rmsnorm(x, weight, bias=None, eps=1e-6):
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    out = (x.float() * scale * weight.float()).to(x.dtype)
    return out if bias is None else out + bias


class TestExamples:
    @pytest.mark.parametrize("shape", [(3, 16), (16,), (2, 1, 5, 16), (0, 16)])
    @pytest.mark.parametrize("biased", [False, True])
    def test_rmsnorm(self, register, shape, biased):
        op = register(example("rmsnorm")[0], rmsnorm)
        x, weight = torch.randn(shape), torch.randn(16)
        bias = torch.randn(16) if biased else None
        torch.library.opcheck(op.default, (x, weight, bias), {"eps": 1e-5})


def case(schema, shapes, dtypes='["float32", "float16"]', **keys):
    return op_of(text_of(schema=f'"{schema}"', shapes=shapes, dtypes=dtypes, grid="[1]", **keys))


class TestShapes:
    def test_expressions(self, register):
        """Half the columns; an argument says how many rows."""
        op = case(
            "k(Tensor x, int rows, bool wide) -> (Tensor, Tensor)",
            '{ x = ["...", "N"], out0 = ["...", "cdiv(N, 2)"], '
            'out1 = ["rows", "max(half, 3) if wide else dim(x)", "N % 4 + min(1, N)"] }',
            let='{ half = "N // 2" }',
        )

        def implementation(x, rows, wide):
            n = x.shape[-1]
            second = (rows, max(n // 2, 3) if wide else x.dim(), n % 4 + min(1, n))
            return x.new_empty((*x.shape[:-1], math.ceil(n / 2))), x.new_zeros(second)

        called = register(op, implementation)
        with torch._subclasses.FakeTensorMode():
            for wide in (True, False):
                for shape in ((2, 7), (8,), (1, 2, 2)):
                    x = torch.empty(shape, dtype=torch.float16)
                    real = implementation(x, 5, wide)
                    fake = called(x, 5, wide)
                    assert [t.shape for t in fake] == [t.shape for t in real]
                    assert [t.dtype for t in fake] == [torch.float16] * 2

    def test_dtypes(self, register):
        op = case(
            "k(Tensor? b, Tensor x) -> (Tensor, Tensor)",
            '{ x = ["N"], out0 = ["N", 2], out1 = [] }',
            '{ b = "x", x = ["float16", "float32"], out0 = "b", out1 = "int64" }',
        )
        called = register(op, lambda b, x: (x, x))
        with torch._subclasses.FakeTensorMode():
            first, second = called(None, torch.empty(3, dtype=torch.float16))
        assert (first.shape, first.dtype) == ((3, 2), torch.float16)
        assert (second.shape, second.dtype) == ((), torch.int64)

    def test_keyword_only_arguments(self, register):
        op = case("k(Tensor x, *, int n=2) -> Tensor", '{ x = ["N"], out = ["N * n"] }')
        called = register(op, lambda x, *, n=2: x.repeat(n))
        torch.library.opcheck(called.default, (torch.randn(3),), {"n": 4})
        torch.library.opcheck(called.default, (torch.randn(3),))

    @pytest.mark.parametrize(
        ("shapes", "words"),
        [
            (((3,), (3, 4), None), "k: w must have 1 dimension"),
            (((2, 3), (4,), None), "k: dimension 0 of w must be N"),
            (((), (4,), None), "k: x must have at least 1 dimension"),
            (((2, 3), (3,), (2, 3)), "k: b must have 1 dimension"),
            (((2, 3), (3,), (2,)), "k: dimension 0 of b must be N"),
        ],
    )
    def test_refusals(self, register, shapes, words):
        called = register(op_of(text_of()), lambda *given: given[0])
        with torch._subclasses.FakeTensorMode():
            tensors = [torch.empty(shape) if shape is not None else None for shape in shapes]
            with pytest.raises(RuntimeError, match=words):
                called(*tensors)

    @pytest.mark.parametrize(
        ("rule", "shape", "words"),
        [
            ('"x"', (2, 4), "k: y must have the shape of x"),
            ('["...", 5]', (3, 5), "k: y and x differ in their first dimensions"),
        ],
    )
    def test_refusals_of_likeness(self, register, rule, shape, words):
        shapes = f'{{ x = ["...", "N"], y = {rule}, out = "x" }}'
        called = register(case("k(Tensor x, Tensor y) -> Tensor", shapes), lambda x, y: x)
        with torch._subclasses.FakeTensorMode():
            with pytest.raises(RuntimeError, match=words):
                called(torch.empty(2, 5), torch.empty(shape))
            assert called(torch.empty(2, 5), torch.empty(2, 5)).shape == (2, 5)


def test_names_that_shapes_do_not_need_are_left_out():
    """They may ask for what a fake tensor does not have, also through one another."""
    let = '{ at = "address(x) % 16", whole = "at == 0 and sm_count() > 1", twice = "N * 2" }'
    op = op_of(
        text_of(let=let, shapes='{ x = ["...", "N"], w = ["N"], b = ["N"], out = ["twice"] }')
    )
    source = fake_source(op)
    assert "_twice = " in source
    assert "_at" not in source
    assert "_whole" not in source


class TestMultiprocessors:
    """`sm_count()` in shapes: what the device of a fake tensor has."""

    @pytest.fixture
    def called(self, register):
        shapes = '{ x = ["M", "N"], partial = ["parts", "N"], out = ["N"] }'
        op = case(
            "k(Tensor x) -> (Tensor partial, Tensor out)",
            shapes,
            let='{ parts = "2 * sm_count()" }',
        )
        return register(op, lambda x: (x, x))

    def test_temporaries_are_not_asked_for(self):
        op = case(
            "k(Tensor x) -> (Tensor out)",
            '{ x = ["M", "N"], partial = ["sm_count()", "N"], out = ["N"] }',
            dtypes='{ x = "float32", partial = "float32", out = "float32" }',
            temporaries='["partial"]',
        )
        assert "sm_count" not in fake_source(op)

    def test_of_the_tensors_device(self, called, monkeypatch):
        facts = {"cuda:0": 132, "cuda:1": 78}

        def properties(device):
            return SimpleNamespace(multi_processor_count=facts[str(device)])

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        with torch._subclasses.FakeTensorMode():
            for device, count in facts.items():
                partial, out = called(torch.empty(3, 5, device=device))
                assert partial.shape == (2 * count, 5)
                assert out.shape == (5,)

    @pytest.mark.parametrize("device", ["cuda:0", "cpu", "meta"])
    def test_where_nobody_knows(self, called, device, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with (
            torch._subclasses.FakeTensorMode(),
            pytest.raises(RuntimeError, match="sm_count") as told,
        ):
            called(torch.empty(3, 5, device=device))
        assert f"a tensor on {device}; compile or export it on a machine with the GPU" in str(
            told.value
        )
