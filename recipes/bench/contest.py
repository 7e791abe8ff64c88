"""Rounds of measurements, every one in a process of its own."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from recipes.bench.measure import Contestant, Measurement, measure

log = logging.getLogger(__name__)

Results = Mapping[str, Sequence[Measurement]]
"""By contestant, a measurement of every round."""


def hold(contestants: Mapping[str, Contestant], rounds: int) -> Results:
    """Measure all contestants in turn, ``rounds`` times over, so that a noisy minute does not strike one alone."""
    results: dict[str, list[Measurement]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, contestant in contestants.items():
            log.info("round %d of %d: %s", number + 1, rounds, name)
            results[name].append(in_fresh_process(contestant))
    return results


def in_fresh_process(contestant: Contestant) -> Measurement:
    """Measure in a new interpreter, whose memory holds nothing of anybody else's."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, contestant).result()
