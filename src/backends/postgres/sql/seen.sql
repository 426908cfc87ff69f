-- $1: waiters, as an array. They are still here.
UPDATE {waiters} SET seen_at_ms = {now} WHERE waiter = ANY($1::text[])
