-- How long a released key is reserved for its oldest waiter, in ms: core/reservation.hpp.
local min_reservation, max_reservation = 50, 300

-- A place in the queue is the entry's score: the time of arrival in microseconds, rounded down to a multiple of 8. The
-- remainder is the requested reservation, in steps of 50 ms, and 0.5 is added to mark the format: entries of older versions
-- lack the 0.5.
local step = min_reservation
