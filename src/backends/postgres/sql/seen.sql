-- $1: waiters, as an array. They are still here.
UPDATE {waiters} SET seen_at_ms = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint WHERE waiter = ANY($1::text[])
