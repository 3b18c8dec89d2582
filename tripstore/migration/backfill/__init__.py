"""The past of Postgres, copied to Schemaless: what the backfill engine needs to know of these two stores."""
