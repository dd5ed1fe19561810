"""The simulation of many remote runtimes: what is known of queues holds in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.scale import Load, simulate

ONE = Load(rate=50, seconds=400, servers=1, slots=1, cpu=0.01, delay=0.0, queue=10_000)


def test_one_server_is_a_queue_of_the_textbook() -> None:
    """With random arrivals and times (M/M/1) the mean time is 1 / (100 - 50) s."""
    report = simulate(ONE)
    assert sum(report.took) / len(report.took) == pytest.approx(0.02, rel=0.05)
    assert report.busy == pytest.approx(0.5, rel=0.05)


def test_more_than_fits_is_refused() -> None:
    """A server that gets twice what it can do does what it can."""
    report = simulate(replace(ONE, rate=200, seconds=100, queue=10))
    assert report.per_second == pytest.approx(100, rel=0.03)
    assert report.refused == pytest.approx(100 * 100, rel=0.05)


def test_waiting_for_tools_takes_slots_and_no_cores() -> None:
    """Eight slots that wait for 100 ms each do 80 runs per second, whatever the cores are."""
    report = simulate(Load(rate=200, seconds=50, servers=1, slots=8, cpu=0.0001, wait=0.1, delay=0.0))
    assert report.per_second == pytest.approx(80, rel=0.02)
    assert report.busy == pytest.approx(1.0, rel=0.02)


def test_nothing_is_lost() -> None:
    """Each run that came has ended, or was refused; the same load gives the same report."""
    load = Load(rate=500, seconds=20, servers=3, slots=2, cpu=0.01, queue=5)
    first, second = simulate(load), simulate(load)
    assert first == second
    assert first.ended == len(first.took)
    assert first.ended + first.refused == pytest.approx(500 * 20, rel=0.03)


def test_shared_cores_are_shared() -> None:
    """Two servers on one core do the work of one."""
    load = Load(rate=1000, seconds=20, servers=2, slots=8, cpu=0.01, shared_cores=1, is_steady=True)
    assert simulate(load).per_second == pytest.approx(100, rel=0.02)


def test_ten_thousand_runs_a_second_need_so_many_servers() -> None:
    """With 3 ms of processor time a run, four cores a server: seven servers are too few, ten are enough."""
    load = Load(rate=10_000, seconds=2, servers=8, slots=64, cores=4, cpu=0.003)
    assert simulate(replace(load, servers=7)).per_second < 9_700
    enough = simulate(replace(load, servers=10))
    assert enough.per_second > 9_700
    assert enough.percentile(0.5) < 0.02


def test_an_event_loop_is_one_thread() -> None:
    """A run waits for the loop of its server, and for that of its caller's process, whatever cores there are."""
    load = Load(rate=190, seconds=50, servers=1, slots=64, cores=16, cpu=0.001, loop=0.005, is_steady=True)
    assert load.most == pytest.approx(200)
    assert simulate(load).per_second == pytest.approx(190, rel=0.05)
    assert simulate(load).percentile(0.5) > 5 * simulate(replace(load, servers=4)).percentile(0.5)
    load = Load(rate=190, seconds=50, servers=4, callers=4, caller_processes=1, cpu=0.001, caller=0.005, is_steady=True)
    assert load.most == pytest.approx(200)
    assert simulate(load).percentile(0.5) > 5 * simulate(replace(load, caller_processes=4)).percentile(0.5)


def test_many_callers_do_not_all_go_to_the_same() -> None:
    """Callers whose news is old spread their programs: those of 20 callers take not much longer than those of one."""
    load = Load(rate=3_000, seconds=5, servers=12, slots=8, cores=2, cpu=0.0045, loop=0.0017)
    one, many = simulate(load), simulate(replace(load, callers=20))
    assert many.percentile(0.99) < 2 * one.percentile(0.99)


def test_programs_that_wait_move_to_a_server_with_room() -> None:
    """Of programs of two seconds few wait while another server has a slot."""
    load = Load(rate=8, seconds=60, callers=20, servers=3, slots=8, cores=2, cpu=0.001, wait=2.0)
    assert simulate(load).percentile(0.95) < 2.3
