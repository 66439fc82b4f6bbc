"""Programs that run beside a DSL, in the environment of its pinned version.

`__main__` is started with an interpreter that knows nothing but its standard library. It answers
one JSON object per line with another (`protocol`); what it is asked is a language's own module,
such as `triton`. Nothing here imports anything of kbuild outside of this package.
"""
