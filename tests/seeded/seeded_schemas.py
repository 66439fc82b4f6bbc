"""Boxed functions whose types are not those of their op's schema."""

from __future__ import annotations

from tests.seeded.seeded_recipe import GOOD, Case, Recipe, on
from tests.support.boxed import registration


def boxed(schema: str, function: str) -> Recipe:
    """The good stable-ABI variant, and the source of an op beside it."""
    lines = (f'm.def("{schema}");', 'm.impl("scale", TORCH_BOX(&scale));')
    return on(GOOD["stable"], boxed=f"{function}\n{registration(*lines)}")


GOOD_SCHEMAS = {
    "schema": boxed(
        "scale(Tensor(a!) out, Tensor x, float factor, int[]? dims) -> ()",
        "void scale(Tensor &out, const Tensor &x, double factor, "
        "std::optional<std::vector<int64_t>> dims) {}",
    )
}
SCHEMAS = tuple(
    Case(f"schema: {name}", wrong, "schema", word, boxed(f"scale({schema}", function))
    for name, wrong, word, schema, function in (
        (*("type", "`int` in the schema, `double` in C++", "takes `double`"),
         *("Tensor x, int factor) -> ()", "void scale(Tensor x, double factor) {}")),
        (*("number", "an argument that C++ does not take", "2 arguments"),
         *("Tensor x, float factor) -> ()", "void scale(Tensor x) {}")),
        (*("order", "two numbers in another order", "another order"),
         *("int rows, int cols) -> ()", "void scale(int64_t cols, int64_t rows) {}")),
        (*("result", "one result, and none in C++", "1 result"),
         *("Tensor x) -> Tensor", "void scale(Tensor x) {}")),
        (*("optional", "`float?` in the schema, `double` in C++", "`float?`"),
         *("Tensor x, float? factor) -> ()", "void scale(Tensor x, double factor) {}")),
        (*("list", "`int[]` in the schema, `std::vector<double>` in C++", "`int[]`"),
         *("Tensor x, int[] by) -> ()", "void scale(Tensor x, std::vector<double> by) {}")),
        (*("mutability", "`Tensor` in the schema, `Tensor &` in C++", "non-const"),
         *("Tensor out, Tensor x) -> ()", "void scale(Tensor &out, Tensor x) {}")),
    )
)  # fmt: skip
