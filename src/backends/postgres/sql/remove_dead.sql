-- $1: key. A lock that has been dead for so long that nobody can want to extend it: core/liveness.hpp, is_removable.
DELETE FROM {locks} WHERE key = $1 AND {now} - expires_at_ms > 2000
