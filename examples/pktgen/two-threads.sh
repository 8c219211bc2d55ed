#!/bin/sh
# Sends from two kpktgend threads at once: one device of the interface on each, with its own queue
# and its own flow, so that a receiver with two queues uses both its CPUs.
#
#   wirebench pktgen run --netns NODE ./two-threads.sh DEV DST_MAC [COUNT [SIZE [PPS]]]
#
# COUNT and PPS are those of one thread.
set -eu

PGDEV=${PGDEV:-/proc/net/pktgen}
DEV=$1
DST_MAC=$2
COUNT=${3:-100000}
SIZE=${4:-60}
PPS=${5:-0}

pgset() {
    echo "$2" > "$PGDEV/$1"
}

pgset pgctrl reset
for cpu in 0 1; do
    pgset "kpktgend_$cpu" "add_device $DEV@$cpu"
    pgset "$DEV@$cpu" "flag QUEUE_MAP_CPU"
    pgset "$DEV@$cpu" "count $COUNT"
    pgset "$DEV@$cpu" "pkt_size $SIZE"
    if [ "$PPS" -gt 0 ]; then
        pgset "$DEV@$cpu" "ratep $PPS"
    fi
    pgset "$DEV@$cpu" "src_min 198.18.1.$((2 + cpu))"
    pgset "$DEV@$cpu" "dst 198.19.1.2"
    pgset "$DEV@$cpu" "dst_mac $DST_MAC"
done

pgset pgctrl start

for cpu in 0 1; do
    echo "$DEV@$cpu"
    grep -A1 Result: "$PGDEV/$DEV@$cpu"
done
