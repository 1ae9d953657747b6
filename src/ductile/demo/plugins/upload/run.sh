#!/bin/sh
# Handles an event whose payload names the target. Half of the copies to the cloud fail, are
# retried after a second, and end as `dead` if they fail too often.
set -eu
request=$(cat)
target=$(printf '%s' "$request" | sed -n 's/.*"target": *"\([a-z]*\)".*/\1/p')
echo "copying to ${target:-nowhere}" >&2

if [ "$target" = cloud ] && [ $(($(od -An -N1 -tu1 /dev/urandom) % 2)) -eq 0 ]; then
    echo '{"status": "error", "error": "the cloud did not answer", "retry": true}'
    exit
fi
printf '{"status": "ok", "result": "copied to %s", "events": [{"type": "upload.done", "payload": {"target": "%s"}}]}\n' \
    "$target" "$target"
