"""Headers that `depends` names: from a folder of the user's, kbuild's store, a wheel, or git."""

from kbuild.toolchains.sources.search import HeaderSources, resolve
from kbuild.toolchains.sources.tree import HeaderSource
from kbuild.toolchains.sources.with_headers import WithHeaders

__all__ = ["HeaderSource", "HeaderSources", "WithHeaders", "resolve"]
