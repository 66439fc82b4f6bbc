"""Races between candidates, on a clock that the test turns."""

from __future__ import annotations

import pytest

from kbuild.dsl.tune.probes.race import RaceRules
from tests.support.simulated_gpus import SimulatedGpu

NO_WARM_UP = {"longest_warm_up_s": 0.0}


def winner(runners) -> int:
    alive = {one: runner for one, runner in runners.items() if not runner.is_out}
    return min(alive, key=lambda one: alive[one].median)


def test_the_fastest_wins():
    runners = SimulatedGpu().race({0: 100.0, 1: 90.0, 2: 95.0})
    assert winner(runners) == 1
    assert runners[1].median == pytest.approx(90.6, rel=0.01)


def test_a_clock_that_falls_hits_all_alike():
    # What is measured first has no advantage, though the device becomes 50 % slower.
    gpu = SimulatedGpu(noise=0.001, throttle_share=0.5, throttle_s=0.2)
    assert winner(gpu.race({0: 102.0, 1: 100.0}, precision=1e-9, **NO_WARM_UP)) == 1
    later = gpu.turns[5:]
    assert later.count(0) == later.count(1)


def test_a_clock_that_rises_has_risen_before_anything_counts():
    """Without a warm-up the candidate that comes last looks fastest at first."""
    cold = {"noise": 0.001, "cold_share": 1.0, "cold_s": 0.01}
    times = {0: 100.0, 1: 101.0, 2: 101.0}
    warm = SimulatedGpu(**cold).race(times)
    assert min(warm[0].samples) > 0.99 * max(warm[0].samples)
    rash = SimulatedGpu(**cold).race(times, **NO_WARM_UP)
    assert max(rash[0].samples) > 1.5 * min(rash[0].samples)


def test_a_clock_that_never_rests_does_not_hold_up_the_race():
    gpu = SimulatedGpu(noise=0.3)
    gpu.race({0: 1000.0}, steady=0.0, seconds=1.0)
    assert gpu.now < 1.5 + 1.0 + 0.1


def test_every_round_begins_with_another():
    gpu = SimulatedGpu(noise=0.05)
    gpu.race({0: 100.0, 1: 100.0, 2: 100.0}, precision=1e-9, rounds=6)
    turns = gpu.turns[1 + 6 :]  # after the warm-up, and two turns of each
    rounds = [tuple(turns[at : at + 3]) for at in range(0, len(turns), 3)]
    assert set(rounds) == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}


def test_hopeless_candidates_are_given_up_early():
    runners = SimulatedGpu().race({0: 100.0, 1: 10000.0, 2: 135.0})
    assert len(runners[1].samples) == 3
    assert runners[1].is_out
    assert runners[2].is_out
    assert not runners[0].is_out


def test_the_default_is_measured_to_the_end():
    runners = SimulatedGpu().race({0: 100.0, 1: 300.0}, keep=1)
    assert not runners[1].is_out
    assert len(runners[1].turns) >= RaceRules().enough


def test_fewer_calls_of_long_ones():
    short = SimulatedGpu().race({0: 10.0, 1: 11.0}, rounds=3)
    long = SimulatedGpu().race({0: 100000.0, 1: 110000.0}, rounds=3)
    assert {one: len(runner.samples) for one, runner in long.items()} == {0: 6, 1: 6}
    assert len(short[0].samples) >= 43


def test_it_ends_in_time():
    gpu = SimulatedGpu()
    gpu.race({0: 1e6, 1: 1e6 + 1}, seconds=8.0, precision=0.0, **NO_WARM_UP)
    assert 8 <= gpu.now < 16
