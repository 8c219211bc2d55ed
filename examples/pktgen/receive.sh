#!/bin/sh
# Receives on DEV as pgrx does until Ctrl-C, or for SECONDS, and shows what came.
#
#   wirebench pktgen run --netns NODE ./receive.sh DEV [SECONDS [counter|basic|time]]
set -eu

PGRX=${PGRX:-/proc/net/pktgen/pgrx}
DEV=$1
SECONDS_=${2:-3600}
MODE=${3:-basic}

trap true INT

echo "rx $DEV" > "$PGRX"
echo "statistics $MODE" > "$PGRX"
echo "receiving on $DEV, Ctrl-C to stop"
sleep "$SECONDS_" || true

cat "$PGRX"
echo rx_disable > "$PGRX"
