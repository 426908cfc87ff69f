, left_queue AS (
  -- With those whose turn is over: they were told and did not come.
  DELETE FROM {waiters} USING moment WHERE (waiter = $2 OR (key = $1 AND turn_until_ms <= moment.now))
    AND (EXISTS (SELECT FROM taken) OR EXISTS (SELECT FROM live WHERE lock_id = $2))
)
