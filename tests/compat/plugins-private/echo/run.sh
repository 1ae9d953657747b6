#!/bin/sh
# The Go program's users write plugins like this one: no JSON tool, only text.
request=$(cat)
config=${request#*\"config\":}
message=${config#*\"message\":\"}
printf '{"status":"ok","result":"%s","logs":[{"level":"info","message":"echoed"}]}\n' "${message%%\"*}"
