from collections.abc import Callable

import pytest

from recipes.bench import contest
from recipes.bench.measure import Contestant, measure


def test_contestants_take_turns(contestant: Callable[..., Contestant], monkeypatch: pytest.MonkeyPatch) -> None:
    ours, peer = contestant("data=t2i"), contestant("data=t2i", name="torchvision")
    order: list[Contestant] = []
    monkeypatch.setattr(contest, "in_fresh_process", lambda _, one: order.append(one) or len(order))
    assert contest.hold({"ours": ours, "peer": peer}, rounds=2, measure=measure) == {"ours": [1, 3], "peer": [2, 4]}
    assert order == [ours, peer, ours, peer]
