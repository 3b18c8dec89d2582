import time, cProfile, pstats
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4
from schemaless_core import Cell, CellKey
from tests.facades import migration
from tests.mirrors import *
from tripstore.phase import Phase

def test_bench(servers, stores):
    with migration(servers, stores, triggers=QUICK) as m:
        m.phase(Phase.DUALWRITE)
        m.phase(Phase.LIVE)
        with reversing(m):
            m.store.put_cells([Cell(uuid4(), "BASE", 1, {"status": "x"})])
            wait_until_mirrored_back(m, 100)
            time.sleep(1)
            t = time.time()
            m.store.put_cells([Cell(uuid4(), "BASE", 1, {"status": "x"}) for _ in range(2000)])
            wait_until_mirrored_back(m, 100)
            print("reverse", 2000 / (time.time() - t), "cells/s and as many ids")
