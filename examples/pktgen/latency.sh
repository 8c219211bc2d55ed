#!/bin/sh
# Inter-arrival time, jitter and latency by packet size: both ports belong to this host, so that
# sender and receiver read one clock.
#
#   wirebench pktgen run --time osta --netns NODE \
#       ./latency.sh DEV RX_DEV DST_MAC [PPS [COUNT [SIZE ...]]]
#
# PPS 0 is as fast as possible.
set -eu

PGDEV=${PGDEV:-/proc/net/pktgen}
DEV=$1
RX_DEV=$2
DST_MAC=$3
PPS=${4:-0}
COUNT=${5:-10000}
if [ $# -gt 5 ]; then
    shift 5
else
    set -- 60 124 252 508 1020 1276 1514
fi

pgset() {
    echo "$2" > "$PGDEV/$1"
}

pgset pgctrl reset
pgset kpktgend_0 "add_device $DEV"
if [ "$PPS" -gt 0 ]; then
    pgset "$DEV" "ratep $PPS"
fi
pgset "$DEV" "count $COUNT"
pgset "$DEV" "src_min 198.18.1.2"
pgset "$DEV" "dst 198.19.1.2"
pgset "$DEV" "dst_mac $DST_MAC"

pgset pgrx "rx $RX_DEV"
pgset pgrx "statistics time"
pgset pgrx "display script"

printf '%5s  %-13s %9s %14s %9s %9s %8s\n' size ns average variance max min samples
for size in "$@"; do
    pgset "$DEV" "pkt_size $size"
    pgset pgrx rx_reset
    pgset pgctrl start
    # A line for each CPU: after 7 columns come five of each block. One CPU received; its line has
    # all three blocks.
    awk -v size="$size" '$1 != "G" && NF == 22 {
        name[8] = "inter-arrival"; name[13] = "jitter"; name[18] = "latency"
        for (i = 8; i <= 18; i += 5)
            printf "%5d  %-13s %9d %14.0f %9d %9d %8d\n",
                size, name[i], $i, $(i + 1), $(i + 2), $(i + 3), $(i + 4)
    }' "$PGDEV/pgrx"
done
pgset pgrx rx_disable
