#!/bin/bash
# A script as people wrote them around 2011: one control file at a time in PGDEV, the same function for all of
# them, words of older versions, an endless run that Ctrl-C ends, and the receiver read afterwards.
#
#   tutorial-zh.sh INTERFACE DST_MAC [SECONDS]

modprobe pktgen 2>/dev/null

pgset() {
    local result
    echo $1 > $PGDEV
    result=`cat $PGDEV | fgrep "Result: OK:"`
    if [ "$result" = "" ]; then
        cat $PGDEV | fgrep Result:
    fi
}

pg() {
    echo inject > $PGDEV
    cat $PGDEV
}

ETH=$1
MAC=$2

echo "Receiver"
PGDEV=/proc/net/pktgen/pgrx
pgset "rx"
pgset "rx_reset"
pgset "display human"
pgset "statistics counter"

echo "Threads"
for processor in 0 1; do
    PGDEV=/proc/net/pktgen/kpktgend_$processor
    pgset "rem_device_all"
done
PGDEV=/proc/net/pktgen/kpktgend_0
pgset "add_device $ETH"
pgset "max_before_softirq 10000"

echo "Device"
PGDEV=/proc/net/pktgen/$ETH
pgset "count 0"
pgset "clone_skb 0"
pgset "pkt_size 60"
pgset "ipg 0"
pgset "config 1"
pgset "src_min 10.10.11.1"
pgset "src_max 10.10.11.1"
pgset "dst 10.10.11.2"
pgset "dst_mac $MAC"
pgset "udp_src_min 9"
pgset "udp_src_max 9"
pg | fgrep Result:

# In place of the fingers on the keyboard.
trap true SIGINT
(sleep ${3:-1}; kill -INT $$) &

PGDEV=/proc/net/pktgen/pgctrl
echo "Running... ctrl^C to stop"
pgset "start"
echo "Done"

cat /proc/net/pktgen/$ETH | grep -A2 "Result:"
cat /proc/net/pktgen/pgrx
