#!/bin/sh
# Sends COUNT packets of SIZE bytes (without FCS) from one interface, and shows the result.
#
#   wirebench pktgen run --netns NODE ./send.sh DEV DST_MAC [COUNT [SIZE [PPS [DST_IP]]]]
#
# COUNT 0 continues until Ctrl-C. PPS 0 is as fast as possible.
set -eu

PGDEV=${PGDEV:-/proc/net/pktgen}
DEV=$1
DST_MAC=$2
COUNT=${3:-10000}
SIZE=${4:-60}
PPS=${5:-0}
DST_IP=${6:-198.19.1.2}

pgset() {
    echo "$2" > "$PGDEV/$1"
}

# Ctrl-C ends the run, not the script: the result is still to be shown.
trap true INT

pgset pgctrl reset
pgset kpktgend_0 "add_device $DEV"
pgset "$DEV" "count $COUNT"
pgset "$DEV" "pkt_size $SIZE"
if [ "$PPS" -gt 0 ]; then
    pgset "$DEV" "ratep $PPS"
fi
pgset "$DEV" "src_min 198.18.1.2"
pgset "$DEV" "dst $DST_IP"
pgset "$DEV" "dst_mac $DST_MAC"

echo "running, Ctrl-C to stop"
pgset pgctrl start || true

grep pkts-sofar "$PGDEV/$DEV"
grep -A1 Result: "$PGDEV/$DEV"
