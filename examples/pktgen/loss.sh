#!/bin/sh
# Loss at rising rates: what the sender says it sent, less what the receiver counted.
#
#   PGRX=RECEIVER/pgrx wirebench pktgen run --netns NODE \
#       ./loss.sh DEV DST_MAC RX_DEV [SIZE [DST_IP [SECONDS [PPS ...]]]]
#
# PGRX is the file of the receiver; without it, the file in the folder of the sender (one host with two ports).
set -eu

PGDEV=${PGDEV:-/proc/net/pktgen}
PGRX=${PGRX:-$PGDEV/pgrx}
DEV=$1
DST_MAC=$2
RX_DEV=$3
SIZE=${4:-60}
DST_IP=${5:-198.19.1.2}
DURATION=${6:-2}
if [ $# -gt 6 ]; then
    shift 6
else
    set -- 5000 10000 20000
fi

pgset() {
    echo "$2" > "$PGDEV/$1"
}

pgset pgctrl reset
pgset kpktgend_0 "add_device $DEV"
pgset "$DEV" "pkt_size $SIZE"
pgset "$DEV" "src_min 198.18.1.2"
pgset "$DEV" "dst $DST_IP"
pgset "$DEV" "dst_mac $DST_MAC"

echo "rx $RX_DEV" > "$PGRX"
echo "statistics basic" > "$PGRX"
echo "display script" > "$PGRX"

printf '%10s %10s %10s %10s %8s %12s\n' 'pps asked' sent received lost 'lost %' 'pps received'
for pps in "$@"; do
    pgset "$DEV" "ratep $pps"
    pgset "$DEV" "count $((pps * DURATION))"
    echo rx_reset > "$PGRX"
    pgset pgctrl start
    # What still waits in queues of the device under test is not lost.
    sleep 0.5
    sent=$(awk '/pkts-sofar/ { print $2 }' "$PGDEV/$DEV")
    # The line of all CPUs: G packets bytes work_us pps Mb/s bps.
    awk -v asked="$pps" -v sent="$sent" '$1 == "G" {
        printf "%10d %10d %10d %10d %8.3f %12d\n",
            asked, sent, $2, sent - $2, (sent - $2) * 100 / sent, $5
    }' "$PGRX"
done
echo rx_disable > "$PGRX"
