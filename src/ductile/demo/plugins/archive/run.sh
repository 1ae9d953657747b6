#!/bin/sh
# A long job. Lines on stderr are its log; `::progress` lines report how far it is.
set -eu
cat > /dev/null

for part in 1 2 3 4 5; do
    echo "::progress $((part * 20 - 10)) packing part $part of 5" >&2
    sleep 2
done
name="archive-$(date +%H%M%S)"
echo "wrote $name" >&2

cat <<END
{
  "status": "ok",
  "result": "$name",
  "events": [{"type": "archive.made", "payload": {"name": "$name"}}]
}
END
