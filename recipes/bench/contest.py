"""Rounds of measurements, every one in a process of its own."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

log = logging.getLogger(__name__)

C = TypeVar("C")  # a contestant
M = TypeVar("M")  # its measurement


def hold(contestants: Mapping[str, C], rounds: int, measure: Callable[[C], M]) -> Mapping[str, Sequence[M]]:
    """Measure all contestants in turn, ``rounds`` times over, so that a noisy minute does not strike one alone.

    Returns:
        By contestant, a measurement of every round.
    """
    results: dict[str, list[M]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, contestant in contestants.items():
            log.info("round %d of %d: %s", number + 1, rounds, name)
            results[name].append(in_fresh_process(measure, contestant))
    return results


def in_fresh_process(measure: Callable[[C], M], contestant: C) -> M:
    """Measure in a new interpreter, whose memory holds nothing of anybody else's."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, contestant).result()
