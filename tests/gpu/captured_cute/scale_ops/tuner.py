"""A tuner like Triton's, as libraries have their own."""

from __future__ import annotations


class Config:
    def __init__(self, **kwargs):
        self.kwargs = kwargs

    def all_kwargs(self):
        return self.kwargs


class Tuner:
    def __init__(self, fn, arg_names, configs):
        self.fn, self.arg_names, self.configs, self.cache = fn, arg_names, configs, {}

    def prune_configs(self, kwargs):
        """Drop what does not fit; `nargs` has the arguments by position."""
        return [each for each in self.configs if each.kwargs["threads"] >= self.nargs["columns"]]

    def _bench(self, *args, config, **kwargs):
        raise NotImplementedError("this test measures nothing")

    def __call__(self, *args, **kwargs):
        key = (*args, *kwargs.values())
        if key not in self.cache:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            configs = self.prune_configs(kwargs)
            times = [self._bench(*args, config=config, **kwargs) for config in configs]
            self.cache[key] = configs[times.index(min(times))]
        return self.fn(*args, **kwargs, **self.cache[key].all_kwargs())
