, (SELECT count(*) FROM (SELECT pg_notify('syncguard_wake', waiter) FROM told OFFSET 0) AS notified)
