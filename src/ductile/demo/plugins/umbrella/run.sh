#!/bin/sh
# Handles an event whose payload contains the sky.
set -eu
sky=$(sed -n 's/.*"sky": *"\([a-z]*\)".*/\1/p')

case $sky in
rain | snow) advice="take an umbrella" ;;
"") advice="look out of the window" ;;
*) advice="leave the umbrella at home" ;;
esac

printf '{"status": "ok", "result": "%s"}\n' "$advice"
