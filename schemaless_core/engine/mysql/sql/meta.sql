-- Per server: what it knows of its shards. Version 1.
CREATE DATABASE IF NOT EXISTS {meta} CHARACTER SET ascii COLLATE ascii_bin;

-- One row: how many shards the datastore has. Row keys would land elsewhere with another number.
CREATE TABLE IF NOT EXISTS {meta}.datastore (
  one TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  shards INT UNSIGNED NOT NULL,
  format INT UNSIGNED NOT NULL
) ENGINE=InnoDB;

-- The counter row of each shard: gives added ids, orders commits, and is the fence.
CREATE TABLE IF NOT EXISTS {meta}.shard_state (
  shard INT UNSIGNED NOT NULL PRIMARY KEY,
  epoch BIGINT UNSIGNED NOT NULL,
  authority_epoch BIGINT UNSIGNED NOT NULL,
  state VARCHAR(5) NOT NULL,
  next_added_id BIGINT UNSIGNED NOT NULL,
  last_created_at DATETIME(6) NOT NULL
) ENGINE=InnoDB;

-- Its history: from which added id on each epoch gave ids.
CREATE TABLE IF NOT EXISTS {meta}.shard_epoch (
  shard INT UNSIGNED NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  first_added_id BIGINT UNSIGNED NOT NULL,
  opened_at DATETIME(6) NOT NULL,
  why VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (shard, epoch)
) ENGINE=InnoDB
