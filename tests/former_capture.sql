-- What `schema apply` made of `tests.legacy.layout()` at an earlier version, as Postgres shows it: a function for each
-- way in which its text was another, and the comments of triggers.

CREATE OR REPLACE FUNCTION tripstore.base_updated()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET extra_float_digits TO '1'
 SET "TimeZone" TO 'UTC'
 SET "DateStyle" TO 'ISO, YMD'
AS $function$
DECLARE
  said text := current_setting('tripstore.origin', true);
  is_warned boolean := false;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR (pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF NEW."base_version" <= OLD."base_version" THEN
    RAISE EXCEPTION 'The version of a row of trips was set from % to %, after it was decided.', OLD."base_version", NEW."base_version" USING ERRCODE = 'TS010', HINT = 'A BEFORE trigger runs after capture''s: give it a name that sorts before them.';
  END IF;
  IF age(OLD.xmin) > 0 THEN
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."driver_id"::pg_catalog.text, NEW."status"::pg_catalog.text, NEW."fare"::pg_catalog.text, NEW."distance"::pg_catalog.text, NEW."request_at"::pg_catalog.text, NEW."base_extra"::pg_catalog.text) AS captured("driver_id", "status", "fare", "distance", "request_at", "base_extra")), (OLD."base_version")::bigint, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp();
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."driver_id"::pg_catalog.text, NEW."status"::pg_catalog.text, NEW."fare"::pg_catalog.text, NEW."distance"::pg_catalog.text, NEW."request_at"::pg_catalog.text, NEW."base_extra"::pg_catalog.text) AS captured("driver_id", "status", "fare", "distance", "request_at", "base_extra")), (OLD."base_version")::bigint, NULLIF(said, '');
  END IF;
  ELSE
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."driver_id"::pg_catalog.text, NEW."status"::pg_catalog.text, NEW."fare"::pg_catalog.text, NEW."distance"::pg_catalog.text, NEW."request_at"::pg_catalog.text, NEW."base_extra"::pg_catalog.text) AS captured("driver_id", "status", "fare", "distance", "request_at", "base_extra")), CASE WHEN f.floor >= (OLD."base_version")::bigint THEN f.floor ELSE (OLD."base_version")::bigint END, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp()
    FROM (SELECT (SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808)) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin)
    SELECT NEW."trip_uuid", 'BASE', (NEW."base_version")::bigint, 1, (SELECT pg_catalog.row_to_json(captured)::pg_catalog.text FROM (SELECT NEW."driver_id"::pg_catalog.text, NEW."status"::pg_catalog.text, NEW."fare"::pg_catalog.text, NEW."distance"::pg_catalog.text, NEW."request_at"::pg_catalog.text, NEW."base_extra"::pg_catalog.text) AS captured("driver_id", "status", "fare", "distance", "request_at", "base_extra")), CASE WHEN f.floor >= (OLD."base_version")::bigint THEN f.floor ELSE (OLD."base_version")::bigint END, NULLIF(said, '')
    FROM (SELECT (SELECT t.ref_key FROM tripstore.tomb t WHERE t.row_key = NEW."trip_uuid" AND t.column_name = 'BASE' AND t.n = 0 AND t.ref_key > -9223372036854775808)) AS f (floor) WHERE f.floor IS NULL OR f.floor < (NEW."base_version")::bigint;
  END IF;
  END IF;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.base_update()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
  said pg_catalog.text;
BEGIN
  IF ROW(OLD."id", OLD."trip_uuid")::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW(NEW."id", NEW."trip_uuid")::pg_catalog.record THEN
    RAISE EXCEPTION 'A row of trips may not change id, trip_uuid: row keys are for ever.' USING ERRCODE = 'TS002', HINT = 'Delete the row and insert another.';
  END IF;
  IF NEW."base_version" OPERATOR(pg_catalog.=) OLD."base_version" THEN
    NULL;
  ELSE
    said := pg_catalog.current_setting('tripstore.origin', true);
    IF NEW."base_version" IS NOT NULL AND (said OPERATOR(pg_catalog.=) 'facade' OR said OPERATOR(pg_catalog.=) 'reverse'
      OR pg_catalog.split_part(pg_catalog.current_setting('tripstore.lifting', true), '|', 1) OPERATOR(pg_catalog.=) (pg_catalog.concat_ws(' ', NEW."trip_uuid", 'base', 0) OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) NEW."base_version")) THEN
      IF NEW."base_version" OPERATOR(pg_catalog.<) OLD."base_version" THEN
        RAISE EXCEPTION 'A row of trips has version % and was sent version %.', OLD."base_version", NEW."base_version" USING ERRCODE = 'TS010', HINT = 'A put of an older version is history: it changes no row.';
      END IF;
      RETURN NEW;
    END IF;
    NEW."base_version" := OLD."base_version";
    IF NOT (ROW(OLD."driver_id", OLD."status", OLD."fare", OLD."distance", OLD."request_at", OLD."base_extra")::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW(NEW."driver_id", NEW."status", NEW."fare", NEW."distance", NEW."request_at", NEW."base_extra")::pg_catalog.record) THEN
      RETURN NEW;
    END IF;
  END IF;
  IF OLD."base_version" OPERATOR(pg_catalog.>=) 9223372036854775807 THEN
    RAISE EXCEPTION 'A row of trips is at version %, and there is none after 9223372036854775807.', OLD."base_version" USING ERRCODE = 'TS006', HINT = 'Ask for help.';
  END IF;
  NEW."base_version" := OLD."base_version" OPERATOR(pg_catalog.+) 1;
  RETURN NEW;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.notes_insert()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
  said text := current_setting('tripstore.origin', true);
  is_warned boolean := false;
  parent_uuid uuid;
BEGIN
  SELECT p."trip_uuid" INTO parent_uuid FROM "public"."trips" p WHERE p."id" = NEW."trip_id";
  IF NOT FOUND THEN
    RAISE EXCEPTION 'A row of notes points by trip_id to %, and trips has no such row.', NEW."trip_id" USING ERRCODE = '23503', HINT = 'Insert the parent first; capture needs its UUID.';
  END IF;
  IF NEW."trip_uuid" IS NULL THEN
    NEW."trip_uuid" := parent_uuid;
  ELSIF NEW."trip_uuid" <> parent_uuid THEN
    RAISE EXCEPTION 'A row of notes says trip_uuid %, and its parent % has %.', NEW."trip_uuid", NEW."trip_id", parent_uuid USING ERRCODE = 'TS008', HINT = 'Leave trip_uuid away: it is filled.';
  END IF;
  IF NEW."n" NOT BETWEEN 0 AND 4398046511103 THEN
    RAISE EXCEPTION 'A row of notes has number %, which no ref key can hold.', NEW."n" USING ERRCODE = 'TS006', HINT = 'Numbers go from 0 to 4398046511103.';
  END IF;
  IF said IS NULL OR NOT (said IN ('facade', 'reverse')) OR NEW."note_version" IS NULL THEN
    NEW."note_version" := 0;
  ELSE
      IF NEW."note_version" OPERATOR(pg_catalog.<) 0 OR NEW."note_version" OPERATOR(pg_catalog.>) 1048575 THEN
        RAISE EXCEPTION 'A row of notes is at version %, and there is none after 1048575.', NEW."note_version" USING ERRCODE = 'TS006', HINT = 'Delete the row and insert it under a new number.';
      END IF;

  END IF;
  RETURN NEW;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.notes_deleted()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
  said text := current_setting('tripstore.origin', true);
  is_warned boolean := false;
  tombstone_key bigint;
  tombstone text;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR (pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF EXISTS (SELECT FROM "public"."notes" r WHERE r."trip_id" = OLD."trip_id" AND r."trip_uuid" = OLD."trip_uuid" AND r."n" = OLD."n") THEN
    PERFORM set_config('tripstore.moved', concat_ws(' ', OLD."trip_uuid", ((OLD."n")::bigint << 20 | OLD."note_version"), 'notes'), true);
    RETURN NULL;
  END IF;
  IF OLD."note_version" >= 1048575 THEN
    RAISE EXCEPTION 'A row of notes is at version %, and there is none after 1048575.', OLD."note_version" USING ERRCODE = 'TS006', HINT = 'Delete the row and insert it under a new number.';
  END IF;
  tombstone_key := ((OLD."n")::bigint << 20 | OLD."note_version") + 1;
  IF said IN ('facade', 'reverse') THEN
    tombstone := current_setting('tripstore.tombstone', true);
    IF substr(tombstone, strpos(tombstone, ' ') + 1) = 'NOTES' THEN
      tombstone_key := split_part(tombstone, ' ', 1)::bigint;
      IF tombstone_key <= ((OLD."n")::bigint << 20 | OLD."note_version") OR tombstone_key >> 20 <> OLD."n" THEN
        RAISE EXCEPTION 'A tombstone % was put for a row of notes at %.', tombstone, ((OLD."n")::bigint << 20 | OLD."note_version") USING ERRCODE = 'TS010', HINT = 'A tombstone stands above the row that it deletes, and keeps its number.';
      END IF;
    END IF;
  END IF;
  INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key)
  VALUES (OLD."trip_uuid", 'NOTES', OLD."n", tombstone_key)
  ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key;
  IF FOUND THEN
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    VALUES (OLD."trip_uuid", 'NOTES', tombstone_key, 1, NULL, ((OLD."n")::bigint << 20 | OLD."note_version"), NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp());
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin) VALUES (OLD."trip_uuid", 'NOTES', tombstone_key, 1, NULL, ((OLD."n")::bigint << 20 | OLD."note_version"), NULLIF(said, ''));
  END IF;
  END IF;
  RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.status_delete()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
  said text := current_setting('tripstore.origin', true);
  is_warned boolean := false;
  highest bigint;
  top bigint;
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(109707427, 1) OR (pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 4 IN (1, 2)) IS NOT TRUE AND (said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER')) IS NOT TRUE THEN
    is_warned := pg_catalog.pg_sequence_last_value('tripstore.gate'::pg_catalog.regclass) % 8 = 0 AND coalesce(said, '') = '' AND tripstore."direct_writers_are_warned"() AND pg_try_advisory_xact_lock_shared(109707427, 1);
    IF is_warned IS NOT TRUE THEN
      RAISE EXCEPTION 'Writes to % are shut off: this database is not the authority now.', TG_TABLE_NAME USING ERRCODE = 'TS001', HINT = 'Write through tripstore. A transaction that is refused during a switch may be repeated.';
    END IF;
  END IF;
  IF EXISTS (SELECT FROM "public"."trips" p WHERE p."id" = OLD."trip_id" AND p."trip_uuid" = OLD."trip_uuid") THEN
    RAISE EXCEPTION 'Rows of attempts are facts: they go only with their parent, and never to another partition.' USING ERRCODE = 'TS004', HINT = 'Delete the parent. If rows are deleted alone, STATUS needs a version in the layout.';
  END IF;
  IF EXISTS (SELECT FROM tripstore.tomb t WHERE t.row_key = OLD."trip_uuid" AND t.column_name = 'STATUS'
    AND t.n = 0 AND t.ref_key >= OLD."attempt_no" + 1) THEN
    RETURN OLD;
  END IF;
  highest := GREATEST(OLD."attempt_no", (SELECT max(r."attempt_no") FROM "public"."attempts" r WHERE r."trip_uuid" = OLD."trip_uuid"), (SELECT max(c.ref_key) FROM tripstore.cell c WHERE c.row_key = OLD."trip_uuid" AND c.column_name = 'STATUS'));
  top := highest + 1;
  INSERT INTO tripstore.tomb AS t (row_key, column_name, n, ref_key)
  VALUES (OLD."trip_uuid", 'STATUS', 0, top)
  ON CONFLICT (row_key, column_name, n) DO UPDATE SET ref_key = excluded.ref_key WHERE t.ref_key < excluded.ref_key;
  IF FOUND THEN
  IF is_warned OR said = 'reverse' AND pg_has_role(session_user, current_user, 'MEMBER') THEN
    INSERT INTO tripstore.log (row_key, column_name, ref_key, layout, row, previous, origin, id, delivered_at)
    VALUES (OLD."trip_uuid", 'STATUS', top, 1, NULL, highest, NULLIF(said, ''), nextval('tripstore.queue_id_seq'), clock_timestamp());
  ELSE
    INSERT INTO tripstore.queue (row_key, column_name, ref_key, layout, row, previous, origin) VALUES (OLD."trip_uuid", 'STATUS', top, 1, NULL, highest, NULLIF(said, '')) ON CONFLICT DO NOTHING;
  END IF;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'A row of attempts was inserted since this transaction began, and its parent is to be deleted.' USING ERRCODE = '40001', HINT = 'Repeat the transaction.';
    END IF;
  END IF;
  RETURN OLD;
END
$function$;

CREATE OR REPLACE FUNCTION tripstore.base_truncate()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
  RAISE EXCEPTION 'trips is not truncated: every row would have to become a tombstone.' USING ERRCODE = 'TS005', HINT = 'DELETE the rows, or allow it in the configuration: then the mirror needs a new backfill.';
END
$function$;

COMMENT ON TRIGGER "0_tripstore_gate" ON notes_0 IS 'tripstore 3800499ca366b6d79599a4694539dbb6';
COMMENT ON TRIGGER "0_tripstore_gate" ON notes_1 IS 'tripstore ac6a34b72ffd628ad7d1f66d9b38c73b';
COMMENT ON TRIGGER "0_tripstore_notes_truncate" ON notes_0 IS 'tripstore 60e1b9cf19a2fc1c3d7322459d51262a';
COMMENT ON TRIGGER "0_tripstore_notes_truncate" ON notes_1 IS 'tripstore 202743d6addfdcac755d13433994a0f9';
COMMENT ON TRIGGER "~tripstore_base_update" ON trips IS 'tripstore 252c34542f9dee7e630ba52b40547cdf';
