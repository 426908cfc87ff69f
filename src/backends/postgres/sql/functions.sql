-- The functions that setup installs in the schema of the tables: one call is one operation. Each statement becomes a constant with its
-- name: see cmake/SyncGuardEmbed.cmake. They follow the rules in core/key_rules.hpp, and share its constants (backends/verdict.hpp).
--
-- An installed function is never replaced: a change of behavior needs a new version in the names (tables.cpp), so that clients of different
-- versions can share the tables. The functions run with the rights of their caller. PostgreSQL resolves names when a statement first runs.
-- The first statement restricts the search path to pg_catalog; it and all types are therefore qualified. Sequential and bitmap scans and
-- sorts are off, because these tables are usually nearly empty when the server plans a statement, and it would then keep reading all of a
-- table, or of a queue, as it grows. For the same reason, no condition on a single lock can use the index of expires_at_ms: see locks.sql.
-- Each statement is planned once: with its estimates for a range of keys, the server would plan again in every call.
--
-- A trigger, a rule or a row-level security policy may discard a change without an error. Each step that has to change a row of a lock or a
-- counter therefore checks that it did, and with the right value.
--
-- {wrong_isolation}: nothing was done because the transaction is not READ COMMITTED. Statements after the wait for the advisory lock would
-- use a snapshot from before it.

-- name: create_acquire_function
CREATE FUNCTION {acquire_function}(storage_key pg_catalog.text, new_id pg_catalog.text, ttl BIGINT, counter_key pg_catalog.text,
  named_key pg_catalog.text, by_clock BOOLEAN, label pg_catalog.text, token pg_catalog.text,
  OUT verdict BIGINT, OUT granted pg_catalog.text, OUT granted_until BIGINT, OUT remaining BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  held_id pg_catalog.text;
  held_until BIGINT;
  held_fence pg_catalog.text;
  now_ms BIGINT;
  has_other_turns BOOLEAN;
  is_in_doubt BOOLEAN;
  least_fence BIGINT;
  counted BIGINT;
BEGIN
  {check_transaction}
  IF current_setting('transaction_read_only') = 'on' THEN
    -- On a standby, rows may be outdated, and a contended key would be reported without any write that fails.
    RAISE 'PostgreSQL is read-only here' USING ERRCODE = '25006';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext(storage_key));
  SELECT l.lock_id, l.expires_at_ms, l.fence INTO held_id, held_until, held_fence FROM {locks} AS l WHERE l.key = storage_key;
  now_ms := {now};
  IF held_until <= now_ms - {tolerance} THEN
    -- A client that does not take the advisory lock may be extending this lock. The time is read after the row is locked, because the time
    -- of waiting must not count as ttl.
    SELECT l.lock_id, l.expires_at_ms, l.fence INTO held_id, held_until, held_fence FROM {locks} AS l WHERE l.key = storage_key
    FOR UPDATE;
    now_ms := {now};
  END IF;
  IF held_until > now_ms - {tolerance} AND held_id COLLATE "C" <> new_id THEN
    verdict := {no};
    remaining := held_until + {tolerance} - now_ms;
    RETURN;
  END IF;
  IF held_until > now_ms - {tolerance} THEN
    -- A repeated attempt. The commit of the first one may have been canceled while it waited for a synchronous standby, so the row is written
    -- again: this commit waits for the standby, too. No key column changes, so that the row lock does not exclude FOR KEY SHARE.
    UPDATE {locks} AS l SET acquired_at_ms = l.acquired_at_ms WHERE l.key = storage_key AND l.lock_id COLLATE "C" = new_id;
    IF NOT FOUND THEN
      {raise_discarded}
    END IF;
    verdict := {yes};
    granted := held_fence;
    granted_until := held_until;
    -- More than the ttl is left if the clock was set back.
    remaining := least(held_until - now_ms, ttl);
  ELSE
    SELECT bool_or(t.waiter <> token), bool_or(t.waiter <> token AND NOT t.turn_until_ms {is_pending}),
      CASE WHEN NOT coalesce(bool_or(t.waiter = token AND t.turn_until_ms {is_pending}), false)
        THEN min(t.turn_until_ms) FILTER (WHERE t.turn_until_ms {is_pending}) - now_ms END
    INTO has_other_turns, is_in_doubt, remaining FROM {waiters} AS t WHERE t.key = storage_key AND t.turn_until_ms > 0;
    IF remaining IS NOT NULL THEN
      verdict := {no};
      RETURN;
    END IF;
    -- With one fence per 100 us, fences keep growing even if the newest counters were lost. A clock beyond the year 2255 is ignored.
    least_fence := greatest({clock_fence}, 1);
    IF least_fence > {warn_above} OR NOT by_clock THEN
      least_fence := 1;
    END IF;
    INSERT INTO {counters} AS c (fence_key, fence, key_debug) VALUES (counter_key, least_fence, named_key)
    ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(c.fence + 1, excluded.fence) WHERE c.fence >= 0 AND c.fence < {refuse_above}
    RETURNING c.fence INTO counted;
    IF counted IS NULL OR counted < least_fence THEN
      PERFORM FROM {counters} AS c WHERE c.fence_key = counter_key AND (c.fence < 0 OR c.fence >= {refuse_above});
      IF NOT FOUND THEN
        {raise_discarded}
      END IF;
      verdict := {counter_at_end};
      RETURN;
    END IF;
    granted := lpad(counted::text, 15, '0');
    INSERT INTO {locks} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, holder, holder_lock_id)
    VALUES (storage_key, new_id, now_ms + ttl, now_ms, granted, named_key, nullif(label, ''), CASE WHEN label <> '' THEN new_id END)
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
      holder = excluded.holder, holder_lock_id = excluded.holder_lock_id
      WHERE l.expires_at_ms <= now_ms - {tolerance}
    RETURNING l.expires_at_ms INTO granted_until;
    IF granted_until IS NULL THEN
      PERFORM FROM {locks} AS l WHERE l.key = storage_key AND l.lock_id COLLATE "C" <> new_id AND l.expires_at_ms + 0 > now_ms - {tolerance};
      IF FOUND THEN
        -- A client that does not take the advisory lock was faster.
        verdict := {no};
        remaining := 50;
        RETURN;
      END IF;
    END IF;
    IF granted_until IS DISTINCT FROM now_ms + ttl THEN
      {raise_discarded}
    END IF;
    verdict := {yes};
    remaining := ttl;
  END IF;
  -- A granted fence must survive a crash.
  IF current_setting('synchronous_commit') <> 'remote_apply' THEN
    setting := set_config('synchronous_commit', 'on', true);
  END IF;
  IF token <> '' THEN
    DELETE FROM {waiters} AS w WHERE w.waiter = token;
  END IF;
  IF has_other_turns THEN
    DELETE FROM {waiters} AS t WHERE t.key = storage_key AND t.turn_until_ms > 0;
  END IF;
  IF is_in_doubt THEN
    {doubt}
  END IF;
END
$function$;

-- name: create_release_function
CREATE FUNCTION {release_function}(held_id pg_catalog.text, OUT verdict BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  held_key pg_catalog.text;
  is_visible BOOLEAN;
  found_id pg_catalog.text;
  held_until BIGINT;
  now_ms BIGINT;
  turns RECORD;
  next_waiter RECORD;
BEGIN
  {check_transaction}
  {find_held_lock}
  DELETE FROM {locks} AS l WHERE l.key = held_key;
  IF NOT FOUND THEN
    {raise_discarded}
  END IF;
  -- If a crash undoes a release, the lock stays held for the rest of its ttl, and nothing worse happens: the log is flushed in order, so no
  -- later grant survives without the release.
  IF held_until - now_ms <= 60000 THEN
    setting := set_config('synchronous_commit', 'off', true);
  ELSIF current_setting('synchronous_commit') <> 'remote_apply' THEN
    setting := set_config('synchronous_commit', 'on', true);
  END IF;
  {pass}
  verdict := {yes};
END
$function$;

-- name: create_extend_function
CREATE FUNCTION {extend_function}(held_id pg_catalog.text, ttl BIGINT, OUT verdict BIGINT, OUT extended_until BIGINT, OUT remaining BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  held_key pg_catalog.text;
  is_visible BOOLEAN;
  found_id pg_catalog.text;
  held_until BIGINT;
  now_ms BIGINT;
BEGIN
  {check_transaction}
  {find_held_lock}
  UPDATE {locks} AS l SET expires_at_ms = now_ms + ttl WHERE l.key = held_key RETURNING l.expires_at_ms INTO extended_until;
  IF extended_until IS DISTINCT FROM now_ms + ttl THEN
    {raise_discarded}
  END IF;
  IF current_setting('synchronous_commit') <> 'remote_apply' THEN
    setting := set_config('synchronous_commit', 'on', true);
  END IF;
  verdict := {yes};
  remaining := ttl;
END
$function$;

-- name: create_break_function
-- Removes the live lock of this key if it has this fence.
CREATE FUNCTION {break_function}(held_key pg_catalog.text, held_fence pg_catalog.text, OUT verdict BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  found_fence pg_catalog.text;
  held_until BIGINT;
  now_ms BIGINT;
  turns RECORD;
  next_waiter RECORD;
BEGIN
  {check_transaction}
  PERFORM pg_advisory_xact_lock(hashtext(held_key));
  SELECT l.fence, l.expires_at_ms INTO found_fence, held_until FROM {locks} AS l WHERE l.key = held_key FOR UPDATE;
  now_ms := {now};
  IF found_fence IS NULL THEN
    -- A policy may let this user read the row but not lock it.
    PERFORM FROM {locks} AS l WHERE l.key = held_key AND l.fence COLLATE "C" = held_fence AND l.expires_at_ms + 0 > now_ms - {tolerance};
    IF FOUND THEN
      {raise_discarded}
    END IF;
  END IF;
  IF found_fence IS NULL OR found_fence COLLATE "C" <> held_fence OR held_until <= now_ms - {tolerance} THEN
    verdict := {no};
    RETURN;
  END IF;
  DELETE FROM {locks} AS l WHERE l.key = held_key;
  IF NOT FOUND THEN
    {raise_discarded}
  END IF;
  {pass}
  verdict := {yes};
END
$function$;

-- name: create_join_function
-- Both join and look, if they have to change something. old_place: the place that the waiter brings, zero if it has none. Purges the queues
-- of keys that are not used anymore. The advisory lock keeps a release from happening between reading the lock and the commit. Such a
-- release would not wake this waiter.
--
-- turn_until_ms + 0: the server may otherwise plan to find the entry of a waiter by reading all entries that have no turn.
--
-- A waiter that is queued while the key is held changes nothing, as usual when it retries, and takes no lock: a release that has not
-- happened yet finds its entry and wakes it. The entry and the lock are read in one snapshot.
CREATE FUNCTION {join_function}(storage_key pg_catalog.text, waiter_id pg_catalog.text, token pg_catalog.text, reservation BIGINT,
  old_place BIGINT, looks BOOLEAN, OUT verdict BIGINT, OUT free_in BIGINT, OUT own_place BIGINT, OUT is_first BOOLEAN)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  now_ms BIGINT;
  held_id pg_catalog.text;
  own RECORD;
  is_in_doubt BOOLEAN;
BEGIN
  {check_transaction}
  verdict := {yes};
  now_ms := {now};
  SELECT l.expires_at_ms + {tolerance} - now_ms, w.place INTO free_in, own_place FROM {waiters} AS w JOIN {locks} AS l ON l.key = storage_key
  WHERE w.waiter = token AND w.turn_until_ms + 0 = 0 AND w.seen_at_ms BETWEEN now_ms - {refresh_seen} AND now_ms
    AND w.reservation_ms >= reservation AND l.lock_id COLLATE "C" <> waiter_id AND l.expires_at_ms + 0 > now_ms - {tolerance}
    AND current_setting('transaction_read_only') = 'off';
  IF FOUND THEN
    {is_first}
    RETURN;
  END IF;

  PERFORM pg_advisory_xact_lock(hashtext(storage_key));
  now_ms := {now};
  SELECT l.lock_id, l.expires_at_ms + {tolerance} - now_ms INTO held_id, free_in FROM {locks} AS l
  WHERE l.key = storage_key AND l.expires_at_ms + 0 > now_ms - {tolerance};
  IF held_id COLLATE "C" = waiter_id THEN
    free_in := NULL;
    IF looks THEN
      -- It has the lock, and only has to be told.
      own_place := old_place;
      RETURN;
    END IF;
  END IF;
  SELECT w.place, w.reservation_ms, w.seen_at_ms, w.turn_until_ms, w.turn_until_ms {is_pending} AS is_pending INTO own
  FROM {waiters} AS w WHERE w.waiter = token;
  IF held_id IS NULL AND own.is_pending IS NOT TRUE THEN
    SELECT min(t.turn_until_ms) FILTER (WHERE t.turn_until_ms {is_pending}) - now_ms, bool_or(t.waiter <> token)
    INTO free_in, is_in_doubt FROM {waiters} AS t WHERE t.key = storage_key AND t.turn_until_ms > 0;
  END IF;

  IF looks AND held_id IS NULL AND free_in IS NULL AND own.is_pending IS NOT TRUE THEN
    -- The key is free, and this waiter is alive: it gets the turn.
    own_place := coalesce(own.place, old_place);
    is_first := true;
    reservation := CASE WHEN own.turn_until_ms > 0 THEN own.reservation_ms ELSE greatest(own.reservation_ms, reservation) END;
    DELETE FROM {waiters} AS w WHERE w.waiter = token;
    DELETE FROM {waiters} AS t WHERE t.key = storage_key AND t.turn_until_ms > 0;
    IF is_in_doubt THEN
      {doubt}
    END IF;
    INSERT INTO {waiters} AS w (waiter, key, place, reservation_ms, seen_at_ms, turn_until_ms)
    VALUES (token, storage_key, own_place, reservation, now_ms,
      now_ms + least(greatest(reservation, {min_reservation}), {max_reservation}));
    RETURN;
  END IF;

  IF own.turn_until_ms = 0 THEN
    own_place := own.place;
    IF own.reservation_ms < reservation OR own.seen_at_ms NOT BETWEEN now_ms - {refresh_seen} AND now_ms THEN
      UPDATE {waiters} AS w SET reservation_ms = greatest(w.reservation_ms, reservation),
        seen_at_ms = CASE WHEN w.seen_at_ms BETWEEN now_ms - {refresh_seen} AND now_ms THEN w.seen_at_ms ELSE now_ms END
      WHERE w.waiter = token;
    END IF;
  ELSIF own.turn_until_ms > 0 AND (looks OR own.is_pending AND held_id IS NULL) THEN
    own_place := own.place;
  ELSE
    -- A turn that lapsed cost the waiter its place. One that another client ignored did not.
    own_place := CASE WHEN own.is_pending THEN own.place ELSE coalesce(nullif(old_place, 0), (
      SELECT greatest(now_ms, max(last_one.place) + 1) FROM (
        (SELECT w.place FROM {waiters} AS w WHERE w.key = storage_key AND w.turn_until_ms = 0
        ORDER BY w.key DESC, w.turn_until_ms DESC, w.place DESC LIMIT 1)
        UNION ALL SELECT t.place FROM {waiters} AS t WHERE t.key = storage_key AND t.turn_until_ms > 0) AS last_one)) END;
    INSERT INTO {waiters} AS w (waiter, key, place, reservation_ms, seen_at_ms, turn_until_ms)
    VALUES (token, storage_key, own_place, reservation, now_ms, 0)
    ON CONFLICT (waiter) DO UPDATE SET place = excluded.place, reservation_ms = excluded.reservation_ms,
      seen_at_ms = excluded.seen_at_ms, turn_until_ms = 0;
    IF NOT looks THEN
      DELETE FROM {waiters} AS w WHERE w.waiter = ANY (ARRAY(
        SELECT dead.waiter FROM {waiters} AS dead WHERE dead.waiter = ANY (ARRAY(
          SELECT oldest.waiter
          FROM (SELECT old.waiter, old.seen_at_ms FROM {waiters} AS old ORDER BY old.place + 0 LIMIT {max_purged}) AS oldest
          WHERE oldest.seen_at_ms NOT BETWEEN now_ms - {purge_after} AND now_ms + {purge_after}))
        AND dead.seen_at_ms NOT BETWEEN now_ms - {purge_after} AND now_ms + {purge_after} FOR UPDATE SKIP LOCKED));
    END IF;
  END IF;
  {is_first}
END
$function$;

-- name: create_look_function
-- What waiters find that were not woken, in their order: {yes} and what join returns, or {no} if the waiter has to look by a call of join,
-- which may change something. Records that they are alive. A locked row is skipped, so that this never waits: its waiter is joining, being
-- woken or leaving.
CREATE FUNCTION {look_function}(storage_keys pg_catalog.text[], waiter_ids pg_catalog.text[], tokens pg_catalog.text[],
  OUT verdict BIGINT, OUT free_in BIGINT, OUT own_place BIGINT, OUT is_first BOOLEAN) RETURNS SETOF RECORD
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  now_ms BIGINT;
  storage_key pg_catalog.text;
  held_id pg_catalog.text;
  own RECORD;
  not_seen pg_catalog.text[];
BEGIN
  {settings}
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    verdict := {wrong_isolation};
    RETURN NEXT;
    RETURN;
  END IF;
  now_ms := {now};
  FOR i IN 1 .. cardinality(tokens) LOOP
    verdict := {yes};
    is_first := true;
    storage_key := storage_keys[i];
    SELECT w.place, w.seen_at_ms, w.turn_until_ms, w.turn_until_ms {is_pending} AS is_pending INTO own
    FROM {waiters} AS w WHERE w.waiter = tokens[i];
    own_place := own.place;
    SELECT l.lock_id, l.expires_at_ms + {tolerance} - now_ms INTO held_id, free_in FROM {locks} AS l
    WHERE l.key = storage_key AND l.expires_at_ms + 0 > now_ms - {tolerance};
    IF held_id COLLATE "C" = waiter_ids[i] THEN
      free_in := NULL;
    ELSIF own.place IS NULL THEN
      verdict := {no};
    ELSIF held_id IS NULL AND NOT own.is_pending THEN
      SELECT min(t.turn_until_ms) - now_ms INTO free_in FROM {waiters} AS t
      WHERE t.key = storage_key AND t.turn_until_ms {is_pending};
      IF free_in IS NULL THEN
        verdict := {no};
      END IF;
    END IF;
    IF free_in IS NOT NULL THEN
      {is_first}
    END IF;
    IF own.turn_until_ms = 0 AND own.seen_at_ms NOT BETWEEN now_ms - {refresh_seen} AND now_ms THEN
      not_seen := array_append(not_seen, tokens[i]);
    END IF;
    RETURN NEXT;
  END LOOP;
  IF not_seen IS NOT NULL THEN
    UPDATE {waiters} AS w SET seen_at_ms = now_ms WHERE w.waiter = ANY (ARRAY(
      SELECT alive.waiter FROM {waiters} AS alive WHERE alive.waiter = ANY (not_seen) FOR UPDATE SKIP LOCKED));
  END IF;
END
$function$;

-- name: create_leave_function
CREATE FUNCTION {leave_function}(held_key pg_catalog.text, token pg_catalog.text, OUT verdict BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  turn_until BIGINT;
  now_ms BIGINT;
  turns RECORD;
  next_waiter RECORD;
BEGIN
  {check_transaction}
  PERFORM pg_advisory_xact_lock(hashtext(held_key));
  verdict := {yes};
  DELETE FROM {waiters} AS w WHERE w.waiter = token RETURNING w.turn_until_ms INTO turn_until;
  now_ms := {now};
  IF turn_until > 0 AND NOT EXISTS (SELECT FROM {locks} AS l WHERE l.key = held_key AND l.expires_at_ms + 0 > now_ms - {tolerance}) THEN
    {pass}
  END IF;
END
$function$;

-- name: is_pending
BETWEEN now_ms + 1 AND now_ms + {max_reservation}

-- name: topic
left(encode(sha256(convert_to(held_key, 'UTF8')), 'hex'), 16)

-- name: is_first
is_first := NOT EXISTS (SELECT FROM {waiters} AS ahead
      WHERE ahead.key = storage_key AND ahead.turn_until_ms = 0 AND ahead.place < own_place);

-- name: doubt
-- A locked row is skipped: its waiter is being recorded as alive.
  DELETE FROM {waiters} AS w WHERE w.waiter = ANY (ARRAY(
      SELECT doubted.waiter FROM {waiters} AS doubted WHERE doubted.key = storage_key AND doubted.turn_until_ms = 0
      ORDER BY doubted.key, doubted.turn_until_ms, doubted.place LIMIT {max_doubted} FOR UPDATE SKIP LOCKED));

-- name: pass
-- The payload of the notification is: waiter, hash of the key, how long the turn lasts. All clients get it.
  SELECT count(*) > 0 AS exist, coalesce(bool_or(t.turn_until_ms {is_pending}), false) AS are_pending INTO turns
  FROM {waiters} AS t WHERE t.key = held_key AND t.turn_until_ms > 0;
  IF NOT turns.are_pending THEN
    IF turns.exist THEN
      DELETE FROM {waiters} AS t WHERE t.key = held_key AND t.turn_until_ms > 0;
    END IF;
    FOR i IN 1 .. {max_front} LOOP
      SELECT w.waiter, w.reservation_ms AS reservation, w.seen_at_ms INTO next_waiter FROM {waiters} AS w
      WHERE w.key = held_key AND w.turn_until_ms = 0 ORDER BY w.key, w.turn_until_ms, w.place LIMIT 1;
      EXIT WHEN NOT FOUND;
      IF next_waiter.seen_at_ms BETWEEN now_ms - {dead_after} AND now_ms + {dead_after} THEN
        next_waiter.reservation := least(greatest(next_waiter.reservation, {min_reservation}), {max_reservation});
        UPDATE {waiters} AS w SET turn_until_ms = now_ms + next_waiter.reservation WHERE w.waiter = next_waiter.waiter;
        PERFORM pg_notify('syncguard_wake', next_waiter.waiter || ' ' || {topic} || ' ' || next_waiter.reservation);
        EXIT;
      END IF;
      DELETE FROM {waiters} AS w WHERE w.waiter = next_waiter.waiter;
    END LOOP;
  END IF;

-- name: check_transaction
-- Starts every function but look, which returns several rows.
  {settings}
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    verdict := {wrong_isolation};
    RETURN;
  END IF;

-- name: function_settings
setting := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  setting := set_config('enable_seqscan', 'off', true) || set_config('enable_bitmapscan', 'off', true)
    || set_config('enable_sort', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: find_held_lock
-- The id is compared byte by byte after the row was found and locked, because the column's collation may treat different ids as equal.
  PERFORM pg_advisory_xact_lock(hashtext(l.key)) FROM {locks} AS l WHERE l.lock_id = held_id;
  is_visible := FOUND;
  SELECT l.key, l.lock_id, l.expires_at_ms INTO held_key, found_id, held_until FROM {locks} AS l WHERE l.lock_id = held_id FOR UPDATE;
  now_ms := {now};
  IF is_visible AND found_id IS NULL THEN
    -- Another client has removed it, or a policy lets this user read the row but not lock it.
    PERFORM FROM {locks} AS l WHERE l.lock_id = held_id;
    IF FOUND THEN
      {raise_discarded}
    END IF;
  END IF;
  IF found_id IS NULL OR found_id COLLATE "C" <> held_id THEN
    verdict := {not_found};
    RETURN;
  END IF;
  IF held_until <= now_ms - {tolerance} THEN
    verdict := {expired};
    RETURN;
  END IF;

-- name: raise_discarded
RAISE 'a trigger, a rule or row-level security discarded a change' USING ERRCODE = 'SG002';
