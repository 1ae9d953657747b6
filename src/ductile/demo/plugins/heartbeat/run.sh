#!/bin/sh
# A minimal plugin: reads one JSON object from stdin, writes one to stdout.
set -eu
request=$(cat)

case $request in
*'"command":"health"'*)
    echo '{"status": "ok", "result": "alive"}'
    exit
    ;;
esac

# The `state_updates` of this run are part of the `state` in the next request.
# For one number sed is enough; a longer script would use jq.
beats=$(printf '%s' "$request" | sed -n 's/.*"state":{"beats":\([0-9]*\).*/\1/p')
beats=$((${beats:-0} + 1))

cat <<END
{
  "status": "ok",
  "result": "beat $beats",
  "state_updates": {"beats": $beats},
  "logs": [{"level": "info", "message": "this is beat number $beats"}]
}
END
