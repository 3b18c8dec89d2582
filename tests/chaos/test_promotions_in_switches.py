"""Switches, ways back and promotions of clusters, at random and at once, under load (I1, I2, I4, I8, I9).

No process is told of a promotion. Services, the relay and the reverse mirror follow the server that leads.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from schemaless_core.errors import PromotionRefused
from schemaless_core.promotion.ports import PromotionOrder
from tests.chaos.capture_actors import errors_in
from tests.chaos.switch_crowd import Crowd, crowd
from tests.chaos.switch_figures import Figures
from tests.chaos.switch_hand_overs import HandOvers
from tests.scale import SCALE, scaled
from tests.stores import SERVER_ENGINES, ServerEngine, Stores
from tripstore.local.binlog import REPLICATION_USER
from tripstore.local.replication import LocalCluster
from tripstore.local.servers import LocalServers
from tripstore.ports.opened import OpenedAsRow

ENGINES: tuple[ServerEngine, ...] = SERVER_ENGINES if SCALE >= 1 else SERVER_ENGINES[1:]
SECONDS = scaled(2700, short=8)
REST_SECONDS = 0.3
#: Of all services. While a server is exchanged, a mirror falls behind, and has to have room to catch up.
PER_SECOND = scaled(200, least=60)
#: How often a promotion that has stopped is gone on with.
ATTEMPTS = 5
ACTS = ("hand over", "promote", "promote in a hand-over")


class Promoting:
    """Makes the other server of a cluster its primary, as `shards promote` does."""

    def __init__(self, everybody: Crowd, hands: HandOvers, clusters: Sequence[LocalCluster]) -> None:
        self._servers = dict(zip("ab", clusters, strict=True))
        self._store = everybody.moving.facade.store
        self._authority = OpenedAsRow(hands.control)
        self.done = Counter[str]()
        self.refused: list[str] = []

    @contextmanager
    def beside(self, promotes: bool) -> Iterator[None]:
        """Promote a server while something else is done."""
        threads = [Thread(target=self.promote, args=(random.choice("ab"),))] if promotes else []
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for thread in threads:
                thread.join()

    def promote(self, cluster: str) -> None:
        """Refused, it is not begun, or stops where the next one goes on: then the operator repeats the command."""
        promoter = self._store.promotions.promoter(cluster, self._authority)
        for _attempt in range(ATTEMPTS):
            begun = time.monotonic()
            try:
                promoter.promote(PromotionOrder())
            except PromotionRefused as refused:
                self.refused.append(refused.message)
                is_begun = not promoter.record().is_done
                print(f"promotion of {cluster} after {time.monotonic() - begun:.1f} s: {refused}; begun: {is_begun}")
                for server in self._servers[cluster].servers:
                    print(f"  {server.name}: {server.position()}, {server.replica_status()}")
                if not is_begun:
                    return
            else:
                self.done[cluster] += 1
                return


def config_of(clusters: Sequence[LocalCluster], folder: Path) -> dict[str, Any]:
    return {
        "clusters": {
            name: {"primary": cluster.primary.url, "replicas": [each.url for each in cluster.replicas]}
            for name, cluster in zip("ab", clusters, strict=True)
        },
        "control": f"sqlite:///{folder / 'control'}",
        "replication": {"user": REPLICATION_USER, "password": clusters[0].primary.password},
    }


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_i1_i9_authority_and_primaries_change_at_random_under_load(
    engine: ServerEngine, servers: LocalServers, stores: Stores, tmp_path: Path
) -> None:
    with LocalServers() as its:
        clusters = its.clusters(engine, ["a", "b"], replicas=1)
        config = config_of(clusters, tmp_path)
        with crowd(engine, clusters, servers, stores, tmp_path, config, PER_SECOND) as everybody:
            moving = everybody.moving
            hands = HandOvers(everybody, moving.legacy.server, [cluster.primary for cluster in clusters])
            promoting = Promoting(everybody, hands, clusters)
            hands.wait_for_answers()
            begun = time.monotonic()
            acts, acted = [*ACTS, *ACTS], Counter[str]()
            while acts or time.monotonic() - begun < SECONDS:
                act = acts.pop() if acts else random.choice(ACTS)
                acted[act] += 1
                with promoting.beside(act != "hand over"):
                    if act != "promote":
                        hands.hand_over(None)
                hands.wait_for_answers()
                time.sleep(REST_SECONDS)  # services work between two acts
            seconds = time.monotonic() - begun
            print(f"promoted {dict(promoting.done)}, refused {promoting.refused}")
            evidence = hands.end(tmp_path)

    figures = Figures(evidence, hands, seconds, errors_in(tmp_path))
    print(f"{figures.line(engine)}; {dict(acted)}, promoted {dict(promoting.done)}, refused {promoting.refused}")
    assert promoting.done
    assert len(promoting.refused) <= sum(promoting.done.values()), "who led follows, so another one may lead"
    assert hands.quiet
