#!/bin/sh
# Latency percentiles and lost packets by rate. Needs what the kernel never had: the command
# `duration` and the file pgrx.json.
#
#   wirebench pktgen run --time osta --netns NODE \
#       ./percentiles.sh DEV RX_DEV DST_MAC [DURATION [PPS ...]]
#
# DEV and RX_DEV belong to one host. The stamp is put in when the packet is built, before the
# sender waits for its turn: below full speed most latencies contain one gap, 1/PPS.
set -eu

PGDEV=${PGDEV:-/proc/net/pktgen}
DEV=$1
RX_DEV=$2
DST_MAC=$3
DURATION=${4:-2s}
if [ $# -gt 4 ]; then
    shift 4
else
    set -- 1000 10000 100000
fi

pgset() {
    echo "$2" > "$PGDEV/$1"
}

pgset pgctrl reset
pgset kpktgend_0 "add_device $DEV"
pgset "$DEV" "pkt_size 60"
pgset "$DEV" "count 0"
pgset "$DEV" "duration $DURATION"
pgset "$DEV" "src_min 198.18.1.2"
pgset "$DEV" "dst 198.19.1.2"
pgset "$DEV" "dst_mac $DST_MAC"

pgset pgrx "rx $RX_DEV"
pgset pgrx "statistics time"

printf '%8s %9s %7s %9s %9s %9s %9s %9s\n' pps samples missing min p50 p90 p99 p99.9
for pps in "$@"; do
    pgset "$DEV" "ratep $pps"
    pgset pgrx rx_reset
    pgset pgctrl start
    # One value a line; of the queues, the one that received.
    awk -v pps="$pps" -F '[:,]' '
        /"queues"/         { in_queues = 1 }
        /"missing_frames"/ { missing = $2 }
        /"latency_ns"/     { in_latency = in_queues }
        in_latency         { gsub(/[ "]/, "", $1); value[$1] = $2 }
        in_latency && /}/  {
            if (value["samples"] > 0)
                printf "%8d %9d %7d %9d %9d %9d %9d %9d\n", pps, value["samples"], missing,
                    value["min"], value["p50"], value["p90"], value["p99"], value["p999"]
            in_latency = 0
        }' "$PGDEV/pgrx.json"
done
pgset pgrx rx_disable
