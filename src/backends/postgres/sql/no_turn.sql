turn AS (SELECT NULL::bigint AS turn_until_ms WHERE false),
