#!/bin/sh
# Runs examples/cron_job.sh as cron would: alone, beside itself, and after a holder was killed.
# usage: cron_job_test.sh CRON_JOB SYNCGUARD
set -eu
cron_job=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/out"
ln -s "$2" "$folder/bin/syncguard"
# What the job calls waits here for as long as the test wants, so that nothing depends on how fast this machine is.
mkfifo "$folder/started" "$folder/go_on"
cat >"$folder/bin/uptime" <<END
#!/bin/sh
echo \$\$ >"$folder/started"
cat "$folder/go_on"
END
chmod +x "$folder/bin/uptime"
export PATH="$folder/bin:$PATH" SYNCGUARD_URL="sqlite:$folder/locks.db"

fail() {
  echo "cron_job_test: $1" >&2
  exit 1
}

# One runs; a second one does nothing, and says that all is well.
"$cron_job" "$folder/out" &
first=$!
read -r _ <"$folder/started"
said=$(timeout 60 "$cron_job" "$folder/out" 2>&1) || fail "the second run did not end well"
[ -z "$said" ] || fail "the second run said: $said"
[ "$(grep -c started "$folder/out/log")" -eq 1 ] || fail "the second run did the work beside the first"
echo report >"$folder/go_on"
wait "$first" || fail "the first run failed"
[ "$(cat "$folder/out/report")" = report ] || fail "the first run left no report"

# One that is killed takes its work with it. Its lock lives on until its time is over, and its fence was a new one.
"$cron_job" "$folder/out" &
killed=$!
read -r work <"$folder/started"
kill -9 "$killed"
wait "$killed" 2>/dev/null || true
tries=0
while kill -0 "$work" 2>/dev/null; do
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || fail "the work outlived syncguard"
  sleep 0.1
done
[ "$(grep -c finished "$folder/out/log")" -eq 1 ] || fail "the killed run finished"
syncguard is-locked cron:report >/dev/null || fail "the killed run's lock is gone before its time"
sed -n 's/started under fence //p' "$folder/out/log" | sort -c -u || fail "the fences do not grow"
