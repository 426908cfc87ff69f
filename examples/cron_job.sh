#!/bin/sh
# A cron job that never runs twice at the same time on the hosts that share the store (without a URL: on this host). In a file in
# /etc/cron.d, with mode 0600 if the URL has a password:
#
#   PATH=/usr/local/bin:/usr/bin:/bin
#   SYNCGUARD_URL=postgres://locker@db.example/locks
#   */5 * * * *  me  /usr/local/bin/cron_job.sh /var/lib/report
#
# The script starts itself again under a lock. `syncguard run` renews the lock while the job runs, and releases it when the job
# has ended, even if it failed. If the lock is lost, the job is killed before another holder can acquire it.
set -eu
folder=$1

if [ "${SYNCGUARD_KEY:-}" != cron:report ]; then
  # If the last run has not ended, this one exits with 0 and prints nothing, so that cron sends no mail.
  exec syncguard -q run --key cron:report --ttl 1m --no-wait --conflict-exit-code 0 -- "$0" "$folder"
fi

# From here on, this is the only running job.
echo "started under fence $SYNCGUARD_FENCE" >>"$folder/log"
uptime >"$folder/report.new"
mv "$folder/report.new" "$folder/report"
echo "finished" >>"$folder/log"
