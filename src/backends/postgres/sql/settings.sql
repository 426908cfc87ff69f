-- $1: how long, in ms. All waits end on the server, too; and a fence that was handed out survives a crash. Every row is found by an
-- index: tables that are nearly empty when the server looks at their size, as these are, would be read as a whole ever after.
SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $1, true),
  set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
  set_config('enable_seqscan', 'off', true)
