"""What a promotion took out of logs, taken out of the files that have it; each file is written anew once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tripstore.export.commits import ExportedFile, ExportFolder, TakenBackCell
from tripstore.export.gathered import column_of


class TakenBackFiles(NamedTuple):
    """What a commit says of files that have too much."""

    replaced: tuple[ExportedFile, ...]
    #: Those that would be empty.
    removed: tuple[str, ...]
    lost: tuple[TakenBackCell, ...]


NOTHING = TakenBackFiles((), (), ())


def take_back(folder: ExportFolder, forks: Mapping[int, int]) -> TakenBackFiles:
    """Write files without the cells of these shards above their forks, for the next commit."""
    replaced, removed, lost = list[ExportedFile](), list[str](), list[TakenBackCell]()
    for each in _files_above(folder, forks):
        table = pq.ParquetFile(folder.path / each.path).read()
        places = zip(table["shard"].to_pylist(), table["added_id"].to_pylist(), strict=True)
        is_lost = [added_id > forks.get(shard, added_id) for shard, added_id in places]
        lost += _named(each.path, table.filter(pa.array(is_lost, pa.bool_())))
        kept = table.filter(pa.array([not each for each in is_lost], pa.bool_()))
        if not kept.num_rows:
            removed.append(each.path)
            continue
        with folder.new_file() as (name, file):
            pq.write_table(kept, file, compression="zstd")
        lasts = {shard: min(last, forks.get(shard, last)) for shard, last in each.shards.items()}
        replaced.append(ExportedFile(each.path, name, kept.num_rows, lasts))
    return TakenBackFiles(tuple(replaced), tuple(removed), tuple(lost))


def _files_above(folder: ExportFolder, forks: Mapping[int, int]) -> list[ExportedFile]:
    """Files with cells of these logs above their forks. Behind a commit that reaches above none there are none."""
    found: dict[str, ExportedFile] = {}
    gone: set[str] = set()
    for commit in folder.commits():
        places = {shard: commit.places[shard] for shard in forks if shard in commit.places}
        if all(place.added_id <= forks[shard] for shard, place in places.items()):
            break
        found = {each.path: each for each in commit.files if each.path not in gone} | found
        gone.update(commit.removed)
    return [each for each in found.values() if any(each.shards.get(shard, 0) > fork for shard, fork in forks.items())]


def _named(path: str, table: pa.Table) -> list[TakenBackCell]:
    rows = zip(*(table[name].to_pylist() for name in ("shard", "added_id", "row_key", "ref_key")), strict=True)
    return [TakenBackCell(shard, added_id, row, column_of(path), ref_key) for shard, added_id, row, ref_key in rows]
