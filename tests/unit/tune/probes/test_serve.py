"""Races between candidates, on a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from kbuild.tune.probes.serve import Race, RaceRules


class Track:
    """A device whose candidates take known times, with noise and a clock that drifts."""

    def __init__(self, times: dict[int, float], noise: float = 0.01, drift: float = 0.0) -> None:
        self.times, self.noise, self.drift = times, noise, drift
        self.random = random.Random(1)  # noqa: S311 - the same noise each time
        self.now = 0.0
        self.current = -1
        self.turns: list[int] = []
        self.spent = dict.fromkeys(times, 0.0)

    def prepare(self, candidate: int) -> None:
        self.current = candidate
        self.turns.append(candidate)

    def time(self, call, count: int) -> list[float]:
        found = []
        for _ in range(count):
            call()
            us = self.times[self.current] * (1 + self.drift * self.now)
            us *= 1 + abs(self.random.gauss(0, self.noise))
            self.now += us / 1e6
            self.spent[self.current] += us
            found.append(us)
        return found

    def race(self, keep: int | None = None, **rules: float):
        race = Race(self, self.prepare, lambda: None, lambda: self.now, RaceRules(**rules))
        return race.perform(list(self.times), keep)


def winner(runners) -> int:
    alive = {one: runner for one, runner in runners.items() if not runner.is_out}
    return min(alive, key=lambda one: alive[one].median)


def test_the_fastest_wins():
    runners = Track({0: 100.0, 1: 90.0, 2: 95.0}).race()
    assert winner(runners) == 1
    assert runners[1].median == pytest.approx(90.6, rel=0.01)


def test_a_drifting_clock_hits_all_alike():
    # The device becomes 50 % slower in each millisecond; what is measured first has no advantage.
    track = Track({0: 102.0, 1: 100.0}, noise=0.001, drift=50.0)
    assert winner(track.race(rounds=30, precision=1e-9)) == 1
    later = track.turns[4:]
    assert later.count(0) == later.count(1)


def test_every_round_begins_with_another():
    track = Track({0: 100.0, 1: 100.0, 2: 100.0}, noise=0.05)
    track.race(precision=1e-9, rounds=6)
    rounds = [track.turns[at : at + 3] for at in range(6, len(track.turns), 3)]
    assert {tuple(one) for one in rounds} == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}


def test_hopeless_candidates_are_given_up_early():
    track = Track({0: 100.0, 1: 10000.0, 2: 130.0})
    runners = track.race()
    assert len(runners[1].samples) == 3
    assert runners[1].is_out
    assert runners[2].is_out
    assert not runners[0].is_out


def test_the_default_is_measured_to_the_end():
    track = Track({0: 100.0, 1: 300.0})
    runners = track.race(keep=1)
    assert not runners[1].is_out
    assert len(runners[1].samples) >= RaceRules().enough


def test_fewer_calls_of_long_ones():
    short, long = Track({0: 10.0, 1: 11.0}), Track({0: 100000.0, 1: 110000.0})
    few = {one: len(runner.samples) for one, runner in long.race(rounds=3).items()}
    many = {one: len(runner.samples) for one, runner in short.race(rounds=3).items()}
    assert few == {0: 6, 1: 6}
    assert many[0] >= 43


def test_it_ends_when_it_is_precise_enough():
    exact, noisy = Track({0: 100.0, 1: 99.0}, noise=1e-6), Track({0: 100.0, 1: 99.0}, noise=0.2)
    assert len(exact.race()[1].samples) < len(noisy.race()[1].samples)


def test_it_ends_in_time():
    track = Track({0: 1e6, 1: 1e6 + 1})
    track.race(seconds=8.0, precision=0.0)
    assert 8 <= track.now < 12


def test_one_alone():
    assert len(Track({5: 10.0}).race()[5].samples) >= RaceRules().enough


def test_warm_calls_are_not_counted():
    calls = []
    track = Track({0: 10.0})
    race = Race(track, track.prepare, lambda: calls.append(1), lambda: track.now)
    runners = race.perform([0])
    assert len(calls) == len(runners[0].samples) + RaceRules().warm
