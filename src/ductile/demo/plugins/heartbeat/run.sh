#!/bin/sh
# The smallest plugin: one JSON object comes on stdin, one goes to stdout.
set -eu
request=$(cat)

case $request in
*'"command":"health"'*)
    echo '{"status": "ok", "result": "alive"}'
    exit
    ;;
esac

# What a run hands back as `state_updates` comes with the next request as `state`.
# A longer script would ask jq; for one number sed will do.
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
