-- One shard. Version 1. Bodies are canonical JSON bytes, never a JSON column: that would lose numbers.
CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET ascii COLLATE ascii_bin;

CREATE TABLE IF NOT EXISTS {database}.cell (
  added_id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  row_key BINARY(16) NOT NULL,
  column_name VARBINARY(64) NOT NULL,
  ref_key BIGINT NOT NULL,
  body MEDIUMBLOB NOT NULL,
  created_at DATETIME(6) NOT NULL,
  UNIQUE KEY cell_key (row_key, column_name, ref_key)
) ENGINE=InnoDB
