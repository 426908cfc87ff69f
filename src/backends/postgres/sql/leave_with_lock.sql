, left_queue AS (
  DELETE FROM {waiters} WHERE waiter = $2 AND (EXISTS (SELECT FROM taken) OR EXISTS (SELECT FROM live WHERE lock_id = $2))
)
