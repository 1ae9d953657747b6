#!/bin/sh
set -eu
text=$(sed -n 's/.*"text":"\([^"]*\)".*/\1/p')
printf '{"status": "ok", "result": "%s"}\n' "$text"
