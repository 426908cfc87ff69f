#!/bin/sh
# Runs examples/cron_job.sh as cron would: alone, twice at the same time, and after a holder was killed.
# usage: cron_job_test.sh CRON_JOB SYNCGUARD
set -eu
cron_job=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/out"
ln -s "$2" "$folder/bin/syncguard"
# The job calls this program, which waits for the test, so that nothing depends on the speed of the machine.
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

# While one job runs, a second one does nothing and succeeds.
"$cron_job" "$folder/out" &
first=$!
read -r _ <"$folder/started"
said=$(timeout 60 "$cron_job" "$folder/out" 2>&1) || fail "the second run failed"
[ -z "$said" ] || fail "the second run printed: $said"
[ "$(grep -c started "$folder/out/log")" -eq 1 ] || fail "the second run did the work at the same time as the first"
echo report >"$folder/go_on"
wait "$first" || fail "the first run failed"
[ "$(cat "$folder/out/report")" = report ] || fail "the first run left no report"

# If syncguard is killed, its command is killed as well. The lock stays held until it expires, and its fence is a new one.
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
syncguard is-locked cron:report >/dev/null || fail "the killed run's lock was released before it expired"
sed -n 's/started under fence //p' "$folder/out/log" | sort -c -u || fail "the fences do not grow"
