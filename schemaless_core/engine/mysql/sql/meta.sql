-- Per server: what it knows of its shards. Version 1.
CREATE DATABASE IF NOT EXISTS {meta} CHARACTER SET ascii COLLATE ascii_bin;

-- One row: how many shards the datastore has. Row keys would land elsewhere with another number.
CREATE TABLE IF NOT EXISTS {meta}.datastore (
  one TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  shards INT UNSIGNED NOT NULL,
  format INT UNSIGNED NOT NULL
) ENGINE=InnoDB;

-- The counter row of each shard: gives added ids, orders commits, and is the fence. Guarded: it has purged keys.
CREATE TABLE IF NOT EXISTS {meta}.shard_state (
  shard INT UNSIGNED NOT NULL PRIMARY KEY,
  epoch BIGINT UNSIGNED NOT NULL,
  authority_epoch BIGINT UNSIGNED NOT NULL,
  state VARCHAR(5) NOT NULL,
  next_added_id BIGINT UNSIGNED NOT NULL,
  last_created_at DATETIME(6) NOT NULL,
  guarded TINYINT UNSIGNED NOT NULL DEFAULT 0
) ENGINE=InnoDB;

-- Its history: from which added id on each epoch gave ids.
CREATE TABLE IF NOT EXISTS {meta}.shard_epoch (
  shard INT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  first_added_id BIGINT UNSIGNED NOT NULL,
  opened_at DATETIME(6) NOT NULL,
  why VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (shard, epoch)
) ENGINE=InnoDB;

-- Which authority epochs it had, as what, and from which added id on.
CREATE TABLE IF NOT EXISTS {meta}.shard_authority (
  shard INT UNSIGNED NOT NULL,
  authority_epoch BIGINT UNSIGNED NOT NULL,
  state VARCHAR(5) NOT NULL,
  first_added_id BIGINT UNSIGNED NOT NULL,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (shard, authority_epoch, state)
) ENGINE=InnoDB;

-- Which server leads this cluster: a promotion adds a row as it opens one.
CREATE TABLE IF NOT EXISTS {meta}.primacy (
  number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  server BIGINT UNSIGNED NOT NULL,
  at DATETIME(6) NOT NULL
) ENGINE=InnoDB;

-- Until when a server takes writes, where it needs a lease for that: each row is in no binary log, and on its own server
-- alone. Server 0 says that leases are needed; replicas have that row, too.
CREATE TABLE IF NOT EXISTS {meta}.lease (
  server BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  lasts_until DATETIME(6) NOT NULL
) ENGINE=InnoDB;

-- What a server has promised as a voter: no lease to a server of that cluster that an earlier promotion opened.
CREATE TABLE IF NOT EXISTS {meta}.promise (
  server BIGINT UNSIGNED NOT NULL,
  cluster VARBINARY(64) NOT NULL,
  number BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (server, cluster)
) ENGINE=InnoDB;

-- How far each group (a trigger, an index) has come in each shard; moved only under the newest fence.
CREATE TABLE IF NOT EXISTS {meta}.trigger_offset (
  group_name VARBINARY(128) NOT NULL,
  shard INT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  added_id BIGINT UNSIGNED NOT NULL,
  fence BIGINT UNSIGNED NOT NULL,
  token BIGINT UNSIGNED NOT NULL,
  updated_at DATETIME(6) NOT NULL,
  PRIMARY KEY (group_name, shard)
) ENGINE=InnoDB;

-- Cells that a group set aside after repeated failure, and, to keep a row's order, those that wait behind them.
CREATE TABLE IF NOT EXISTS {meta}.trigger_parked (
  group_name VARBINARY(128) NOT NULL,
  shard INT UNSIGNED NOT NULL,
  added_id BIGINT UNSIGNED NOT NULL,
  row_key BINARY(16) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  attempts INT UNSIGNED NOT NULL,
  is_waiting TINYINT UNSIGNED NOT NULL,
  error VARCHAR(500) CHARACTER SET utf8mb4 NOT NULL,
  parked_at DATETIME(6) NOT NULL,
  next_attempt_at DATETIME(6) NOT NULL,
  token BIGINT UNSIGNED NOT NULL DEFAULT 0,
  PRIMARY KEY (group_name, shard, added_id),
  KEY of_row (group_name, shard, row_key, added_id),
  KEY due (group_name, next_attempt_at)
) ENGINE=InnoDB;

-- Where a shard was claimed last, how often since its offset moved, and the cell whose call may have ended its process.
CREATE TABLE IF NOT EXISTS {meta}.trigger_call (
  group_name VARBINARY(128) NOT NULL,
  shard INT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  added_id BIGINT UNSIGNED NOT NULL,
  claims INT UNSIGNED NOT NULL,
  called_epoch BIGINT UNSIGNED NOT NULL,
  called_id BIGINT UNSIGNED NOT NULL,
  calls INT UNSIGNED NOT NULL,
  PRIMARY KEY (group_name, shard)
) ENGINE=InnoDB;

-- Fields that are missing from index entries although their cells hold something. No reason: it parses by now.
CREATE TABLE IF NOT EXISTS {meta}.index_error (
  index_name VARBINARY(64) NOT NULL,
  version INT UNSIGNED NOT NULL,
  shard INT UNSIGNED NOT NULL,
  row_key BINARY(16) NOT NULL,
  field VARBINARY(64) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  reason VARCHAR(200) CHARACTER SET utf8mb4,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (index_name, version, shard, row_key, field)
) ENGINE=InnoDB;

-- What repair did to the cells of this server, with the bytes before and after. Rows are only ever added.
CREATE TABLE IF NOT EXISTS {meta}.mended (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  token BINARY(16) NOT NULL UNIQUE,
  shard INT UNSIGNED NOT NULL,
  added_id BIGINT UNSIGNED NOT NULL,
  action VARCHAR(5) NOT NULL,
  row_key BINARY(16),
  column_name VARBINARY(64),
  ref_key BIGINT,
  old_body MEDIUMBLOB,
  new_body MEDIUMBLOB,
  job VARCHAR(64) CHARACTER SET utf8mb4 NOT NULL,
  who VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  host VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  at DATETIME(6) NOT NULL,
  KEY of_job (job, id),
  KEY of_row (row_key, id)
) ENGINE=InnoDB;

-- Added ids at which nothing stands any more: readers of the log pass them.
CREATE TABLE IF NOT EXISTS {meta}.purged (
  shard INT UNSIGNED NOT NULL,
  added_id BIGINT UNSIGNED NOT NULL,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (shard, added_id)
) ENGINE=InnoDB;

-- Keys that were purged: up to this ref key no cell of the column is ever stored again. No column: of the whole row.
CREATE TABLE IF NOT EXISTS {meta}.purged_key (
  shard INT UNSIGNED NOT NULL,
  row_key BINARY(16) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  is_erased TINYINT UNSIGNED NOT NULL DEFAULT 0,
  at DATETIME(6) NOT NULL,
  PRIMARY KEY (shard, row_key, column_name)
) ENGINE=InnoDB;

-- Cells for shards of other servers, which did not take them in time. The numbers are in the order of arrival.
CREATE TABLE IF NOT EXISTS {meta}.buffered (
  number BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  shard INT UNSIGNED NOT NULL,
  row_key BINARY(16) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  body MEDIUMBLOB NOT NULL,
  body_bytes INT UNSIGNED NOT NULL,
  kept_at DATETIME(6) NOT NULL,
  UNIQUE KEY buffered_key (row_key, column_name, ref_key),
  KEY of_shard (shard, number),
  KEY sizes (body_bytes)
) ENGINE=InnoDB;

-- Those of them that are second copies: they wait until each replica of their own cluster has them.
CREATE TABLE IF NOT EXISTS {meta}.second_copy (
  number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  kept_at DATETIME(6) NOT NULL
) ENGINE=InnoDB;

-- Those whose shard had another body under their key, and that body.
CREATE TABLE IF NOT EXISTS {meta}.buffer_conflict (
  number BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  shard INT UNSIGNED NOT NULL,
  row_key BINARY(16) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  body MEDIUMBLOB NOT NULL,
  kept_at DATETIME(6) NOT NULL,
  stored_body MEDIUMBLOB NOT NULL,
  found_at DATETIME(6) NOT NULL,
  KEY of_row (row_key)
) ENGINE=InnoDB;

-- Copies of documents of the control database (which versions an index has), for those who cannot ask that, and the
-- dictionaries of compressed bodies, which are nowhere else.
CREATE TABLE IF NOT EXISTS {meta}.document (
  name VARBINARY(128) NOT NULL PRIMARY KEY,
  version BIGINT UNSIGNED NOT NULL,
  body MEDIUMBLOB NOT NULL
) ENGINE=InnoDB
