-- What `schema apply` made of `tests.legacy.moving_layout()` at an earlier version, as Postgres shows it: functions
-- that went by a setting for where a row begins that moves to another partition.

CREATE OR REPLACE FUNCTION tripstore.base_deleted()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET row_security TO 'off'
AS $function$
DECLARE
  said text := CASE WHEN coalesce(current_setting('tripstore.origin', true), '') = '' OR pg_catalog.has_table_privilege(SESSION_USER, 'tripstore.cell', 'INSERT') THEN current_setting('tripstore.origin', true) ELSE 'forged' END;
  is_warned boolean := false;
  tombstone_key bigint;
  tombstone text;
BEGIN
  BEGIN
    IF pg_catalog.num_nulls(OLD."id", OLD."trip_uuid", OLD."base_version") OPERATOR(pg_catalog.<) 0 THEN
      NULL;
    END IF;
  EXCEPTION WHEN undefined_column THEN
    RAISE EXCEPTION 'tripstore cannot capture rows of trips, which lost a mapped column: %.', SQLERRM USING ERRCODE = 'TS011', HINT = 'Rename the column back; or name the new one in the layout of trips and run `tripstore schema apply`.';
  END;
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR ((CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := (CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF EXISTS (SELECT FROM "public"."trips" r WHERE r."id" = OLD."id" AND r."trip_uuid" = OLD."trip_uuid") THEN
    PERFORM set_config('tripstore.moved', concat_ws(' ', OLD."trip_uuid", (OLD."base_version")::bigint, 'base'), true);
    RETURN NULL;
  END IF;
  IF OLD."base_version" >= 9223372036854775807 THEN
    RAISE EXCEPTION 'A row of trips is at version %, and there is none after 9223372036854775807.', OLD."base_version" USING ERRCODE = 'TS006', HINT = 'Ask for help.';
  END IF;
  tombstone_key := (OLD."base_version")::bigint + 1;
  IF said IN ('facade', 'reverse') THEN
    tombstone := current_setting('tripstore.tombstone', true);
    IF substr(tombstone, strpos(tombstone, ' ') + 1) = 'BASE' THEN
      tombstone_key := split_part(tombstone, ' ', 1)::bigint;
      IF tombstone_key <= (OLD."base_version")::bigint THEN
        RAISE EXCEPTION 'A tombstone % was put for a row of trips at %.', tombstone, (OLD."base_version")::bigint USING ERRCODE = 'TS010', HINT = 'A tombstone stands above the row that it deletes, and keeps its number.';
      END IF;
    END IF;
  END IF;
  INSERT INTO tripstore.cell (row_key, column_name, ref_key, body)
  VALUES (OLD."trip_uuid", '_LEGACY_ID', 0, convert_to('{"id":' || OLD."id" || '}', 'UTF8')) ON CONFLICT DO NOTHING;
  INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key)
  VALUES (OLD."trip_uuid", 'BASE', 0, tombstone_key)
  ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key;
  IF FOUND THEN
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    VALUES (OLD."trip_uuid", 'BASE', tombstone_key, 1, NULL, (OLD."base_version")::bigint, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp());
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin) VALUES (OLD."trip_uuid", 'BASE', tombstone_key, 1, NULL, (OLD."base_version")::bigint, NULLIF(said, ''));
  END IF;
  END IF;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.base_inserted()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
  said text := CASE WHEN coalesce(current_setting('tripstore.origin', true), '') = '' OR pg_catalog.has_table_privilege(SESSION_USER, 'tripstore.cell', 'INSERT') THEN current_setting('tripstore.origin', true) ELSE 'forged' END;
  is_warned boolean := false;
  floor bigint;
BEGIN
  BEGIN
    IF pg_catalog.num_nulls(NEW."id", NEW."trip_uuid", NEW."base_version", NEW."status") OPERATOR(pg_catalog.<) 0 THEN
      NULL;
    END IF;
  EXCEPTION WHEN undefined_column THEN
    RAISE EXCEPTION 'tripstore cannot capture rows of trips, which lost a mapped column: %.', SQLERRM USING ERRCODE = 'TS011', HINT = 'Rename the column back; or name the new one in the layout of trips and run `tripstore schema apply`.';
  END;
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR ((CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := (CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    INSERT INTO tripstore.tomb (row_key, column_name, n, ref_key) VALUES (NEW."trip_uuid", 'BASE', 0, -9223372036854775808) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      DELETE FROM tripstore.tomb t WHERE (t.row_key, t.column_name, n, ref_key) = (NEW."trip_uuid", 'BASE', 0, -9223372036854775808);
    END IF;
  END IF;
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), f.floor, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp()
    FROM (SELECT GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base'))) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), f.floor, NULLIF(said, '')
    FROM (SELECT GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base'))) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  END IF;
  IF NOT FOUND THEN
    floor := GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base'));
    IF said IN ('facade', 'reverse') THEN
      RAISE EXCEPTION 'A row of trips was put at ref key %, and was deleted at %.', (NEW."base_version")::bigint, floor USING ERRCODE = 'TS007', HINT = 'The deletion came in between: start again.';
    END IF;
    IF floor >= 9223372036854775807 THEN
      RAISE EXCEPTION 'A row of trips is at version %, and there is none after 9223372036854775807.', floor USING ERRCODE = 'TS006', HINT = 'Ask for help.';
    END IF;
    PERFORM set_config('tripstore.lifting', concat_ws('|', pg_catalog.concat_ws(' ', NEW."trip_uuid", 'base', 0) || ' ' || floor + 1, nullif(current_setting('tripstore.lifting', true), '')), true);
  ELSE
  END IF;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.base_lifted()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET row_security TO 'off'
AS $function$
DECLARE
  said text[] := string_to_array(pg_catalog.split_part(pg_catalog.current_setting('tripstore.lifting', true), '|', 1), ' ');
  target bigint := said[4]::bigint;
BEGIN
  IF said[2] IS DISTINCT FROM 'base' THEN
    RETURN;
  END IF;
  UPDATE "public"."trips" AS r SET "base_version" = target
  WHERE r."trip_uuid" = said[1]::uuid AND r."base_version" < target AND GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = r."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = r."trip_uuid"::text AND m[3] = 'base')) + 1 = target;
  IF EXISTS (SELECT FROM "public"."trips" AS r WHERE r."trip_uuid" = said[1]::uuid AND r."base_version" < target) THEN
    RAISE EXCEPTION 'A row of trips came back after its deletion and could not be given version %.', target USING ERRCODE = 'TS007', HINT = 'A trigger or policy of the table refuses the UPDATE of its version.';
  END IF;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.base_updated()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
  said text := CASE WHEN coalesce(current_setting('tripstore.origin', true), '') = '' OR pg_catalog.has_table_privilege(SESSION_USER, 'tripstore.cell', 'INSERT') THEN current_setting('tripstore.origin', true) ELSE 'forged' END;
  is_warned boolean := false;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR ((CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := (CASE WHEN (pg_catalog.pg_sequence_last_value('tripstore.accepted'::pg_catalog.regclass) = ('x' || pg_catalog.pg_walfile_name('0/1'))::bit(32)::bigint) IS FALSE THEN -2 ELSE pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) END) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF NEW."base_version" <= OLD."base_version" THEN
    RAISE EXCEPTION 'The version of a row of trips was set from % to %, after it was decided.', OLD."base_version", NEW."base_version" USING ERRCODE = 'TS010', HINT = 'A BEFORE trigger runs after capture''s: give it a name that sorts before them.';
  END IF;
  -- no session can say by itself where a row begins
  IF NEW."base_version" > OLD."base_version" + 1 THEN
    IF (said IN ('facade', 'reverse')) IS NOT TRUE AND (NEW."base_version")::bigint IS DISTINCT FROM GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base')) + 1 THEN
      RAISE EXCEPTION 'The version of a row of trips was set from % to %, and versions rise by one.', OLD."base_version", NEW."base_version" USING ERRCODE = 'TS010', HINT = 'The layout says which column is its version: leave it out of the UPDATE.';
    END IF;
  END IF;
  IF age(OLD.xmin) > 0 THEN
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), (OLD."base_version")::bigint, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp();
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), (OLD."base_version")::bigint, NULLIF(said, '');
  END IF;
  ELSE
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), CASE WHEN f.floor >= (OLD."base_version")::bigint THEN f.floor ELSE (OLD."base_version")::bigint END, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp()
    FROM (SELECT GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base'))) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."status"::pg_catalog.text) AS captured("status")), CASE WHEN f.floor >= (OLD."base_version")::bigint THEN f.floor ELSE (OLD."base_version")::bigint END, NULLIF(said, '')
    FROM (SELECT GREATEST((SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808), (SELECT m[2]::bigint FROM string_to_array(current_setting('tripstore.moved', true), ' ') AS m WHERE m[1] = NEW."trip_uuid"::text AND m[3] = 'base'))) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  END IF;
  END IF;
  RETURN NULL;
END
$function$;
