"""The model of a whole `build.toml`.

The fixed sections, the backends' own, and `[kernel.*]` sections in Python DSLs.

Only the shape of the DSL tables is described here; `kbuild.ops.section` reads their
expressions, shapes and names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

from pydantic import AliasChoices, Discriminator, Field, StrictStr, Tag, create_model
from pydantic_core import core_schema

from kbuild.project.config.document import is_in_dsl
from kbuild.project.config.issue import toml_type
from kbuild.project.config.model import BackendCatalog, BuildFile, General, NoarchSection, Section

_KINDS: dict[str, tuple[type, ...]] = {
    "a string": (str,),
    "an integer": (int,),
    "a float": (float,),
    "a boolean": (bool,),
    "a list": (list, tuple),
    "a table": (dict,),
}
_JSON = {
    "a string": {"type": "string"},
    "an integer": {"type": "integer"},
    "a float": {"type": "number"},
    "a boolean": {"type": "boolean"},
    "a list": {"type": "array"},
    "a table": {"type": "object"},
}


@dataclass(frozen=True)
class OneOf:
    """A value that may be written in several ways, judged in one sentence."""

    kinds: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        """The value itself.

        Raises:
            ValueError: it is of another kind.
        """
        for kind in self.kinds:
            # A boolean of Python's is an integer as well.
            fits = isinstance(value, _KINDS[kind])
            if fits and (kind == "a boolean" or not isinstance(value, bool)):
                return value
        raise ValueError(f"must be {' or '.join(self.kinds)}, not {toml_type(value)}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"anyOf": [_JSON[kind] for kind in self.kinds]}


ExpressionText = Annotated[Any, OneOf(("a string", "an integer"))]
AnyValue = Annotated[Any, OneOf(tuple(_KINDS))]
ShapeValue = Annotated[Any, OneOf(("a string", "a list"))]
DtypesValue = Annotated[Any, OneOf(("a list", "a string", "a table"))]
ConfigsValue = Annotated[Any, OneOf(("a list", "a string"))]
ToolchainValue = Annotated[Any, OneOf(("a string", "a list"))]
NamesValue = Annotated[Any, OneOf(("a list", "a boolean"))]
FillText = Annotated[Any, OneOf(("a float", "an integer", "a string", "a boolean"))]
NumberValue = Annotated[Any, OneOf(("a float", "an integer"))]


class LaunchKeys(Section):
    """Base of the tables that describe one launch of a kernel function."""

    function: StrictStr | None = None
    """The kernel function; the op's name, or else `<op>_kernel`."""
    args: Mapping[str, AnyValue] = {}
    """Kernel parameter -> tensor or expression; a parameter with the name of one needs no entry. A
    list is a tuple, `{ tensor = "a", block = [...] }` a tensor descriptor, `"None"` None."""
    constants: Mapping[str, AnyValue] = {}
    """Kernel constant -> a value, `"None"`, an expression, `{ value = "<expression>", choices =
    [...] }` (with `none = true` if it may be None), `{ string = "<text>" }` or `{ dtype = "<tensor
    or dtype>" }`. A list is a tuple."""
    configs: ConfigsValue = ()
    """Candidates: tables of constants and launch options, with `when`, `archs` and `aligned` for
    those that are not for every call; or `"autotune"`, the kernel's own."""
    matrix: Mapping[str, tuple[Any, ...]] = {}
    """Candidates as all combinations of these lists."""
    keep: tuple[StrictStr, ...] = ()
    """Conditions that candidates must meet; the others are left out."""
    grid: tuple[ExpressionText, ...] = ()
    """Number of blocks: one to three expressions."""
    divisible: tuple[StrictStr | tuple[StrictStr, ...], ...] = ()
    """Integer arguments that the aligned image assumes to be divisible by 16; each call is tested.
    Two or three lists make as many aligned images."""
    ones: tuple[StrictStr, ...] = ()
    """Integer arguments that aligned images assume to be 1; each call is tested."""
    int64: tuple[StrictStr, ...] = ()
    """Integer arguments that are passed with 64 bits; others have 32, which is checked."""


class LaunchSection(LaunchKeys):
    """One `[[kernel.<name>.op.launch]]` table: a launch, or a call of ATen between launches."""

    when: StrictStr | None = None
    """Condition for the launch; it is skipped in calls that do not meet it."""
    aten: StrictStr | None = None
    """An operator of ATen to call in place of a launch: `"sum.dim_IntList"`."""
    arguments: tuple[AnyValue, ...] = ()
    """Its arguments in the order of its schema; those behind the last may have defaults."""
    results: tuple[StrictStr, ...] = ()
    """The results and temporaries that it produces, in the order of its schema; none for an
    operator that works in place."""


class TuneSection(Section):
    """The `[kernel.<name>.op.tune]` table: the calls that `kbuild tune` measures."""

    cases: tuple[Mapping[str, Any], ...] = ()
    """Calls to measure: a value for each dimension and for the arguments that are numbers."""
    sizes: Mapping[str, tuple[Any, ...]] = {}
    """More calls: all combinations of these values."""
    inputs: StrictStr | None = None
    """`module:function` that makes the tensors; random ones when absent."""
    reference: StrictStr | None = None
    """`module:function` that computes the expected result with Torch."""
    rtol: NumberValue | None = None
    """Relative tolerance of results; by dtype when absent."""
    atol: NumberValue | None = None
    """Absolute tolerance of results; by dtype and magnitude when absent."""


class ViewSection(Section):
    """One entry of the `views` of an op: a tensor that shares the memory of another one."""

    of: StrictStr
    """An argument, a result, a temporary, or another view."""
    shape: tuple[ExpressionText, ...]
    """Its dimensions."""
    strides: tuple[ExpressionText, ...] | None = None
    """Its strides in elements; contiguous when absent."""
    offset: ExpressionText = 0
    """Distance of its first element from that of the other tensor, in elements."""


class ProjectionSection(Section):
    """One entry of the `projections` of an op: an op that returns some of the results."""

    schema_: StrictStr
    """Torch schema, with the arguments of the op in their order."""
    results: tuple[StrictStr, ...]
    """The results that it returns, by their names in the op."""


class OpSection(LaunchKeys):
    """One `[[kernel.<name>.op]]` table: an op of a kernel that is written in a DSL."""

    schema_: StrictStr
    """Torch schema: `"rmsnorm(Tensor x, Tensor weight, float eps=1e-6) -> Tensor"`."""
    shapes: Mapping[str, ShapeValue] = {}
    """Tensor -> its dimensions, or the name of the tensor that it is shaped like. Results need
    one."""
    dtypes: DtypesValue
    """The dtypes of all tensors, or a table by tensor; a tensor's name means its dtype."""
    let: Mapping[str, ExpressionText] = {}
    """Names for expressions; each may use those before it."""
    require: tuple[StrictStr, ...] = ()
    """Conditions that every call must meet."""
    contiguous: NamesValue = ()
    """Tensors that must be contiguous; `true` for all."""
    returned: Mapping[str, StrictStr] = {}
    """Result that is a `Tensor?` -> the condition under which it is not None."""
    temporaries: tuple[StrictStr, ...] = ()
    """Further tensors for the launches, allocated by the op; `shapes` and `dtypes` describe
    them."""
    views: Mapping[str, ViewSection] = {}
    """Tensors that share memory with others: name -> `{ of = "x", shape = ["M * N"] }`, with
    `strides` and `offset` in elements. A result may be a view of a temporary."""
    zero: tuple[StrictStr, ...] = ()
    """Results, temporaries and contiguous `Tensor(a!)` arguments that are zeroed before the
    launches."""
    fill: Mapping[str, FillText] = {}
    """Tensor -> its value before the launches: a number, `"inf"`, `"-inf"` or `"nan"`."""
    key: tuple[ExpressionText, ...] = ()
    """Expressions that the best candidate depends on."""
    tune: TuneSection | None = None
    """Calls that `kbuild tune` measures."""
    fallback: Literal["none", "jit"] = "none"
    """`jit`: if no image fits, run Triton if the user has it; `none`: refuse the call."""
    hooks: Literal["calls", "tuning", "none"] = "calls"
    """When `reset_to_zero` of a kernel's own candidates counts: before every call, while they are
    measured, or never, like all their other hooks."""
    projections: tuple[ProjectionSection, ...] = ()
    """Further ops with the same arguments and launches, which return some of the results."""
    launch: tuple[LaunchSection, ...] = ()
    """Several launches, in order, each with these keys of its own."""


class LanguageKeys(Section):
    """The keys of a `[kernel.<name>]` section that is written in a DSL."""

    language: StrictStr
    """`triton`, `ninetoothed`, `helion`, `cute`, `cutile`, `tilelang` or `flydsl`."""
    toolchain: ToolchainValue
    """The DSL's distribution at an exact version: `"triton==3.9.0"`, or a list of them."""
    src: tuple[StrictStr, ...]
    """Python sources, the one with the kernel functions first; `my_ops/**/*.py` is a pattern."""
    op: tuple[OpSection, ...] = ()
    """The ops."""


BackendsValue = Annotated[Any, OneOf(("a string", "a list"))]


class LanguageSection(LanguageKeys):
    """A `[kernel.<name>]` table with another `language` than C++."""

    # `kbuild.project.config.file_model` adds the arch lists of the backends.

    backend: BackendsValue
    """The backend that this kernel is compiled for, or a list of them."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Every backend that it is compiled for."""
        return (self.backend,) if isinstance(self.backend, str) else tuple(self.backend)

    @property
    def pins(self) -> tuple[str, ...]:
        """The distributions of its toolchain: `triton==3.9.0`."""
        return (self.toolchain,) if isinstance(self.toolchain, str) else tuple(self.toolchain)

    def archs_of(self, key: str) -> tuple[str, ...] | None:
        """An arch list by its key; None when there is none."""
        value: tuple[str, ...] | None = getattr(self, key.replace("-", "_"), None)
        return value


DSL = "in a DSL"
"""Tag of the sections that are written in Python DSLs, whatever their backends."""


PluginKeys = tuple[tuple[str, Any], ...]
"""Keys of plug-ins in kernels that are written in a DSL, each with the type of its value."""


@lru_cache(maxsize=4)
def build_file_type(catalog: BackendCatalog, plugin_keys: PluginKeys = ()) -> type[BuildFile]:
    """`BuildFile` with `[general.<backend>]` tables, and kernels told apart.

    A kernel in a DSL is one by its `language`, any other is known by its `backend`.
    """
    tables: dict[str, Any] = {
        name: (section | None, None) for name, section in catalog.general_sections.items()
    }
    general = create_model("General", __base__=General, __doc__=General.__doc__, **tables)
    sections = {**catalog.kernel_sections, DSL: language_section(catalog, plugin_keys)}
    tagged = tuple(Annotated[section, Tag(name)] for name, section in sections.items())
    kernel: Any = Annotated[Union[tagged], Discriminator(_tag)]  # noqa: UP007
    fields: dict[str, Any] = {
        "general": (general, ...),
        "torch_noarch": (_noarch_section(catalog) | None, None),
        "kernel": (dict[str, kernel], {}),
    }
    return create_model("BuildFile", __base__=BuildFile, __doc__=BuildFile.__doc__, **fields)


def _noarch_section(catalog: BackendCatalog) -> type[NoarchSection]:
    """`NoarchSection` with the arch lists of all backends."""
    fields: dict[str, Any] = {}
    for backend, (key, _) in catalog.arch_keys.items():
        name = key.replace("-", "_")
        about = f"Archs to announce for {backend}; nothing is compiled for them. Older tools write "
        alias = AliasChoices(key, name)
        entry = Field(default=None, validation_alias=alias, description=f"{about}`{name}`.")
        fields[name] = (tuple[StrictStr, ...] | None, entry)
    return create_model(
        "NoarchSection", __base__=NoarchSection, __doc__=NoarchSection.__doc__, **fields
    )


@lru_cache(maxsize=4)
def language_section(
    catalog: BackendCatalog, plugin_keys: PluginKeys = ()
) -> type[LanguageSection]:
    """`LanguageSection` with the arch lists of all backends that have kernels in DSLs."""
    fields: dict[str, Any] = {key: (value_type, None) for key, value_type in plugin_keys}
    for backend in catalog.language_backends:
        if backend not in catalog.arch_keys:
            continue
        key, _ = catalog.arch_keys[backend]
        about = f"Archs for {backend}, as in other kernels."
        entry = Field(default=None, description=about)
        fields[key.replace("-", "_")] = (tuple[StrictStr, ...] | None, entry)
    return create_model(
        "LanguageSection", __base__=LanguageSection, __doc__=LanguageSection.__doc__, **fields
    )


def _tag(section: Any) -> str | None:
    if isinstance(section, LanguageSection):
        return DSL
    if not isinstance(section, Mapping):
        backend = getattr(section, "backend", None)
        return backend if isinstance(backend, str) else None
    if is_in_dsl(section):
        return DSL
    backend = section.get("backend")
    return backend if isinstance(backend, str) else None
