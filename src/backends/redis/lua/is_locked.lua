-- KEYS: lock. Returns YES, NO or FOREIGN.
-- include read
return YES
