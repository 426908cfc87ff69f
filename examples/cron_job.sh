#!/bin/sh
# A cron job that never runs beside itself, on this host or, with SYNCGUARD_URL set to a server, on any:
#
#   */5 * * * *  me  /usr/local/bin/cron_job.sh /var/lib/report
#
# It starts itself again as the holder of a lock. `syncguard run` renews the lock while the job runs and lets it go when
# the job has ended, however it ends; if the lock is lost, the job is killed before anybody else can have it.
set -eu
folder=$1

if [ "${SYNCGUARD_KEY:-}" != cron:report ]; then
  # Still running from last time is no failure and no news, so cron has nothing to send mail about.
  exec syncguard -q run --key cron:report --ttl 1m --no-wait --conflict-exit-code 0 -- "$0" "$folder"
fi

# From here on this is the only one.
echo "started under fence $SYNCGUARD_FENCE" >>"$folder/log"
uptime >"$folder/report.new"
mv "$folder/report.new" "$folder/report"
echo "finished" >>"$folder/log"
