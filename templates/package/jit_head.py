_folder = pathlib.Path(__file__).parent / "_aot_sources"


def _function(module, name):
    """A kernel function, from the source that its images were compiled from."""
    sys.path.insert(0, str(_folder))
    try:
        return getattr(importlib.import_module(f"._aot_sources.{module}", __package__), name)
    finally:
        sys.path.remove(str(_folder))


def _fallback(schema, distribution):
    """Register what runs where no image fits a call; nothing where the DSL is not installed."""

    def register(function):
        name = schema.partition("(")[0]
        if name not in _registered and importlib.util.find_spec(distribution):
            _registered.add(name)
            _library.define(schema)
            _library.impl(name, function, "CompositeExplicitAutograd")
        return function

    return register


_library = torch.library.Library(add_op_namespace_prefix("").removesuffix("::"), "FRAGMENT")
