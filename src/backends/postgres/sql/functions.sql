-- The functions that setup installs in the schema of the tables: one call is one operation. Each statement becomes a constant with its
-- name: see cmake/SyncGuardEmbed.cmake.
--
-- An installed function is never replaced: a change of behavior needs a new version in the names (tables.cpp), so that clients of different
-- versions can share the tables. The functions run with the rights of their caller. PostgreSQL resolves names when a statement first runs.
-- The first statement restricts the search path to pg_catalog; it and all types are therefore qualified. Sequential and bitmap scans and
-- sorts are off, because these tables are usually nearly empty when the server plans a statement, and it would then keep reading all of a
-- table, or of a queue, as it grows. For the same reason, no condition on a single lock can use the index of expires_at_ms: see locks.sql.
-- Each statement is planned once: with its estimates for a range of keys, the server would plan again in every call.
--
-- A trigger, a rule or a row-level security policy may discard a change without an error. Each step that has to change a row therefore
-- checks that it did, and with the right value.
--
-- Verdicts: 1 done, 0 contended, -1 not found, -2 expired, -4 the counter is exhausted, -8 nothing was done because the transaction is not
-- READ COMMITTED: statements after the wait for the advisory lock would use a snapshot from before it.

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
  has_lapsed_turns BOOLEAN;
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
  IF held_until <= now_ms - 1000 THEN
    -- A client that does not take the advisory lock may be extending this lock. The time is read after the row is locked, because the time
    -- of waiting must not count as ttl.
    SELECT l.lock_id, l.expires_at_ms, l.fence INTO held_id, held_until, held_fence FROM {locks} AS l WHERE l.key = storage_key
    FOR UPDATE;
    now_ms := {now};
  END IF;
  IF held_until > now_ms - 1000 AND held_id COLLATE "C" <> new_id THEN
    verdict := 0;
    remaining := held_until + 1000 - now_ms;
    RETURN;
  END IF;
  IF held_until > now_ms - 1000 THEN
    -- A repeated attempt. The commit of the first one may have been canceled while it waited for a synchronous standby, so the row is written
    -- again: this commit waits for the standby, too. No key column changes, so that the row lock does not exclude FOR KEY SHARE.
    UPDATE {locks} AS l SET acquired_at_ms = l.acquired_at_ms WHERE l.key = storage_key AND l.lock_id COLLATE "C" = new_id;
    IF NOT FOUND THEN
      {raise_discarded}
    END IF;
    verdict := 1;
    granted := held_fence;
    granted_until := held_until;
    -- More than the ttl is left if the clock was set back.
    remaining := least(held_until - now_ms, ttl);
  ELSE
    -- A reservation lasts at most 300 ms. One that ends later was made before the clock was set back.
    SELECT min(front.turn_until_ms)
        FILTER (WHERE front.waiter <> token AND front.turn_until_ms BETWEEN now_ms + 1 AND now_ms + 300) - now_ms,
      bool_or(front.turn_until_ms BETWEEN 1 AND now_ms)
    INTO remaining, has_lapsed_turns FROM {turns};
    IF remaining IS NOT NULL THEN
      verdict := 0;
      RETURN;
    END IF;
    -- With one fence per 100 us, fences keep growing even if the newest counters were lost. A clock beyond the year 2255 is ignored.
    least_fence := greatest({clock_fence}, 1);
    IF least_fence > 90000000000000 OR NOT by_clock THEN
      least_fence := 1;
    END IF;
    INSERT INTO {counters} AS c (fence_key, fence, key_debug) VALUES (counter_key, least_fence, named_key)
    ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(c.fence + 1, excluded.fence) WHERE c.fence BETWEEN 0 AND 899999999999999
    RETURNING c.fence INTO counted;
    IF counted IS NULL OR counted < least_fence THEN
      PERFORM FROM {counters} AS c WHERE c.fence_key = counter_key AND c.fence NOT BETWEEN 0 AND 899999999999999;
      IF NOT FOUND THEN
        {raise_discarded}
      END IF;
      verdict := -4;
      RETURN;
    END IF;
    granted := lpad(counted::text, 15, '0');
    INSERT INTO {locks} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, holder, holder_lock_id)
    VALUES (storage_key, new_id, now_ms + ttl, now_ms, granted, named_key, nullif(label, ''), CASE WHEN label <> '' THEN new_id END)
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
      holder = excluded.holder, holder_lock_id = excluded.holder_lock_id
      WHERE l.expires_at_ms <= now_ms - 1000
    RETURNING l.expires_at_ms INTO granted_until;
    IF granted_until IS NULL THEN
      PERFORM FROM {locks} AS l WHERE l.key = storage_key AND l.lock_id COLLATE "C" <> new_id AND l.expires_at_ms + 0 > now_ms - 1000;
      IF FOUND THEN
        -- A client that does not take the advisory lock was faster.
        verdict := 0;
        remaining := 50;
        RETURN;
      END IF;
    END IF;
    IF granted_until IS DISTINCT FROM now_ms + ttl THEN
      {raise_discarded}
    END IF;
    verdict := 1;
    remaining := ttl;
  END IF;
  -- A granted fence must survive a crash.
  IF current_setting('synchronous_commit') <> 'remote_apply' THEN
    setting := set_config('synchronous_commit', 'on', true);
  END IF;
  DELETE FROM {waiters} AS w WHERE w.waiter = token;
  IF has_lapsed_turns THEN
    DELETE FROM {waiters} AS w WHERE w.position = ANY (ARRAY(
      SELECT front.position FROM {turns} WHERE front.turn_until_ms BETWEEN 1 AND now_ms));
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
  next_waiter pg_catalog.text;
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
  {pass_turn_of_held_key}
  verdict := 1;
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
  verdict := 1;
  remaining := ttl;
END
$function$;

-- name: create_join_function
-- A waiter that is already in the queue keeps its place. If the key is locked again, its turn was lost to a client without a queue and is
-- reset; otherwise no release would wake it again. Removes waiters whose turn has lapsed, and waiters that were not seen for 30 s.
-- turn_until_ms = 0 marks a waiter that was woken without a reservation and may still come. The advisory lock keeps a release from
-- happening between reading the lock and the commit. Such a release would not wake this waiter.
--
-- Nothing of this is needed if the waiter has a place and the key is held, as usual when it retries: a release that has not happened yet
-- finds the place and wakes the waiter. The place and the lock are read in one snapshot.
CREATE FUNCTION {join_function}(storage_key pg_catalog.text, token pg_catalog.text, reservation BIGINT,
  OUT verdict BIGINT, OUT remaining BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  now_ms BIGINT;
BEGIN
  {check_transaction}
  now_ms := {now};
  SELECT l.expires_at_ms + 1000 - now_ms INTO remaining FROM {waiters} AS w JOIN {locks} AS l ON l.key = storage_key
  WHERE w.waiter = token AND w.turn_until_ms IS NULL AND w.seen_at_ms > now_ms - 15000 AND w.reservation_ms >= reservation
    AND l.expires_at_ms + 0 > now_ms - 1000 AND current_setting('transaction_read_only') = 'off';
  IF FOUND THEN
    verdict := 1;
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext(storage_key));
  now_ms := {now};
  SELECT l.expires_at_ms + 1000 - now_ms INTO remaining FROM {locks} AS l
  WHERE l.key = storage_key AND l.expires_at_ms + 0 > now_ms - 1000;
  DELETE FROM {waiters} AS w WHERE w.position = ANY (ARRAY(
    SELECT front.position FROM {front_of_queue} WHERE front.waiter <> token
      AND ((front.turn_until_ms > 0 AND front.turn_until_ms <= now_ms) OR front.turn_until_ms > now_ms + 300
        OR front.seen_at_ms < now_ms - 30000)));
  INSERT INTO {waiters} AS w (key, waiter, seen_at_ms, reservation_ms) VALUES (storage_key, token, now_ms, reservation)
  ON CONFLICT (waiter) DO UPDATE SET seen_at_ms = excluded.seen_at_ms, reservation_ms = excluded.reservation_ms,
    turn_until_ms = CASE WHEN remaining IS NULL THEN w.turn_until_ms END;
  verdict := 1;
  remaining := coalesce(remaining, 0);
END
$function$;

-- name: create_leave_function
-- If the waiter had its turn and the lock is free, the turn is passed on.
CREATE FUNCTION {leave_function}(held_key pg_catalog.text, token pg_catalog.text, OUT verdict BIGINT)
LANGUAGE plpgsql AS $function$
DECLARE
  setting pg_catalog.text;
  turn_until BIGINT;
  now_ms BIGINT;
  next_waiter pg_catalog.text;
BEGIN
  {check_transaction}
  PERFORM pg_advisory_xact_lock(hashtext(held_key));
  verdict := 1;
  DELETE FROM {waiters} AS w WHERE w.waiter = token RETURNING w.turn_until_ms INTO turn_until;
  now_ms := {now};
  IF turn_until IS NULL OR turn_until <= now_ms
    OR EXISTS (SELECT FROM {locks} AS l WHERE l.key = held_key AND l.expires_at_ms + 0 > now_ms - 1000) THEN
    RETURN;
  END IF;
  {pass_turn_of_held_key}
END
$function$;

-- name: front_of_queue
-- The oldest waiters. Not all of them, because there may be thousands. For the range of one key, see pass_turn_of_held_key.
(SELECT waiter.position, waiter.waiter, waiter.seen_at_ms, waiter.turn_until_ms FROM {waiters} AS waiter
      WHERE waiter.key >= storage_key AND waiter.key <= storage_key ORDER BY waiter.key, waiter.position LIMIT 100) AS front

-- name: turns
-- The oldest waiters that have a turn or can get one. Those with a turn are ahead of the others, so all turns are among them.
(SELECT waiter.position, waiter.waiter, waiter.turn_until_ms FROM {waiters} AS waiter
      WHERE waiter.key >= storage_key AND waiter.key <= storage_key
        AND (waiter.turn_until_ms > 0 OR waiter.turn_until_ms IS NULL AND waiter.seen_at_ms > now_ms - 30000)
      ORDER BY waiter.key, waiter.position LIMIT 100) AS front

-- name: check_transaction
-- Starts every function.
  setting := pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  setting := set_config('enable_seqscan', 'off', true) || set_config('enable_bitmapscan', 'off', true)
    || set_config('enable_sort', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true);
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    verdict := -8;
    RETURN;
  END IF;

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
    verdict := -1;
    RETURN;
  END IF;
  IF held_until <= now_ms - 1000 THEN
    verdict := -2;
    RETURN;
  END IF;

-- name: pass_turn_of_held_key
-- Gives the turn to the oldest waiter that was seen in the last 30 s. A range of one key instead of equality, because the server would
  -- otherwise read the whole table in the order of position.
  UPDATE {waiters} AS w SET turn_until_ms = now_ms + least(greatest(coalesce(w.reservation_ms, 50), 50), 300)
  WHERE w.position = (
    SELECT oldest.position FROM {waiters} AS oldest
    WHERE oldest.key >= held_key AND oldest.key <= held_key AND oldest.turn_until_ms IS NULL AND oldest.seen_at_ms > now_ms - 30000
    ORDER BY oldest.key, oldest.position LIMIT 1)
  RETURNING w.waiter INTO next_waiter;
  IF FOUND THEN
    PERFORM pg_notify('syncguard_wake', next_waiter);
  END IF;

-- name: raise_discarded
RAISE 'a trigger, a rule or row-level security discarded a change' USING ERRCODE = 'SG002';
