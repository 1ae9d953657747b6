#!/bin/sh
request=$(cat)
event=${request#*\"event\":}
case $event in
*'"message":"'*) message=${event#*\"message\":\"} message=${message%%\"*} ;;
*) message="an event" ;;
esac
printf '{"status":"ok","logs":[{"level":"info","message":"sent: %s"}]}' "$message"
