-- One cluster. Version 1. The same tables as on MySQL, with the shard as a column instead of a database.
CREATE TABLE IF NOT EXISTS datastore (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  shards INTEGER NOT NULL,
  format INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS shard_state (
  shard INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  authority_epoch INTEGER NOT NULL,
  state TEXT NOT NULL,
  next_added_id INTEGER NOT NULL,
  last_created_at INTEGER NOT NULL -- microseconds since 1970, UTC
);

CREATE TABLE IF NOT EXISTS shard_epoch (
  shard INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  first_added_id INTEGER NOT NULL,
  opened_at INTEGER NOT NULL,
  why TEXT NOT NULL,
  PRIMARY KEY (shard, epoch)
);

CREATE TABLE IF NOT EXISTS shard_authority (
  shard INTEGER NOT NULL,
  authority_epoch INTEGER NOT NULL,
  state TEXT NOT NULL,
  first_added_id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (shard, authority_epoch, state)
);

CREATE TABLE IF NOT EXISTS trigger_offset (
  group_name TEXT NOT NULL,
  shard INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (group_name, shard)
);

CREATE TABLE IF NOT EXISTS trigger_call (
  group_name TEXT NOT NULL,
  shard INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  claims INTEGER NOT NULL,
  called_epoch INTEGER NOT NULL,
  called_id INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  PRIMARY KEY (group_name, shard)
);

CREATE TABLE IF NOT EXISTS trigger_parked (
  group_name TEXT NOT NULL,
  shard INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  is_waiting INTEGER NOT NULL,
  error TEXT NOT NULL,
  parked_at INTEGER NOT NULL,
  next_attempt_at INTEGER NOT NULL,
  PRIMARY KEY (group_name, shard, added_id)
);

CREATE TABLE IF NOT EXISTS cell (
  shard INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  body BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (shard, added_id),
  UNIQUE (shard, row_key, column_name, ref_key)
);

CREATE TABLE IF NOT EXISTS index_error (
  index_name TEXT NOT NULL,
  version INTEGER NOT NULL,
  shard INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  field TEXT NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  reason TEXT, -- NULL: it parses by now
  at INTEGER NOT NULL,
  PRIMARY KEY (index_name, version, shard, row_key, field)
);

CREATE TABLE IF NOT EXISTS mended (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  shard INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  action TEXT NOT NULL,
  row_key BLOB,
  column_name BLOB,
  ref_key INTEGER,
  old_body BLOB,
  new_body BLOB,
  job TEXT NOT NULL,
  who TEXT NOT NULL,
  host TEXT NOT NULL,
  at INTEGER NOT NULL
);

CREATE INDEX IF NOT EXISTS mended_of_row ON mended (row_key, id);

CREATE TABLE IF NOT EXISTS purged (
  shard INTEGER NOT NULL,
  added_id INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (shard, added_id)
);

-- Up to this ref key no cell of the column is ever stored again. No column: of the whole row.
CREATE TABLE IF NOT EXISTS purged_key (
  shard INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  is_erased INTEGER NOT NULL DEFAULT 0,
  at INTEGER NOT NULL,
  PRIMARY KEY (shard, row_key, column_name)
);

CREATE TABLE IF NOT EXISTS buffered (
  number INTEGER PRIMARY KEY AUTOINCREMENT, -- none is given twice
  shard INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  body BLOB NOT NULL,
  kept_at INTEGER NOT NULL,
  UNIQUE (row_key, column_name, ref_key)
);

CREATE INDEX IF NOT EXISTS buffered_of_shard ON buffered (shard, number);

CREATE TABLE IF NOT EXISTS second_copy (
  number INTEGER PRIMARY KEY,
  kept_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS buffer_conflict (
  number INTEGER PRIMARY KEY,
  shard INTEGER NOT NULL,
  row_key BLOB NOT NULL,
  column_name BLOB NOT NULL,
  ref_key INTEGER NOT NULL,
  body BLOB NOT NULL,
  kept_at INTEGER NOT NULL,
  stored_body BLOB NOT NULL,
  found_at INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS document (
  name TEXT PRIMARY KEY,
  version INTEGER NOT NULL,
  body BLOB NOT NULL
);
