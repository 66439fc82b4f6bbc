from __future__ import annotations

import pytest

from kbuild.plugins.capture.values import factors, is_contiguous


@pytest.mark.parametrize(
    ("first", "second", "are_equal"),
    [
        (["M", "64", "N"], ["M", "8", "8 * N"], True),
        (["M * N"], ["N", "M"], True),
        (["dim_0", "dim_1"], ["rows"], True),
        (["N * M + 1"], ["N", "M + 1"], False),
        (["M // 2", "2"], ["M"], False),
    ],
)
def test_products_of_sizes(first: list[str], second: list[str], are_equal: bool) -> None:
    assert (factors(first) == factors(second)) is are_equal


def test_contiguous_strides() -> None:
    assert is_contiguous({"sizes": ["M", "K", "N + 1"], "strides": ["K * (N + 1)", "N + 1", "1"]})
    assert not is_contiguous({"sizes": ["M", "N"], "strides": ["1", "M"]})
    assert not is_contiguous({"sizes": ["M", "N"], "strides": ["2 * N", "1"]})
