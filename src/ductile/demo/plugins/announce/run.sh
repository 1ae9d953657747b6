#!/bin/sh
set -eu
cat > /dev/null
echo '{"status": "ok", "result": "the archive is in both places"}'
