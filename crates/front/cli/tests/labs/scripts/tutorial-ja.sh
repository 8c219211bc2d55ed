#!/bin/bash
# A delay measurement as people made it in 2013: the receiver set up first, a run of a fixed number of
# packets, all statistics read in both forms.
#
#   tutorial-ja.sh INTERFACE DST_MAC [RECEIVING_INTERFACE]

pgset() {
    local result

    echo $1 > $PGDEV

    result=`cat $PGDEV | fgrep "Result: OK:"`
    if [ "$result" = "" ]; then
        cat $PGDEV | fgrep "Result:"
    fi
}

TX=$1
MAC=$2
RX=$3

PGDEV=/proc/net/pktgen/pgrx
pgset "rx $RX"
pgset "statistics time"
pgset "display human"

PGDEV=/proc/net/pktgen/pgctrl
pgset "reset"

PGDEV=/proc/net/pktgen/kpktgend_0
pgset "rem_device_all"
pgset "add_device $TX"

PGDEV=/proc/net/pktgen/$TX
pgset "count 10000"
pgset "clone_skb 0"
pgset "pkt_size 60"
pgset "delay 0"
pgset "src_min 192.168.0.1"
pgset "src_max 192.168.0.1"
pgset "dst_min 192.168.0.2"
pgset "dst_max 192.168.0.2"
pgset "dst_mac $MAC"

PGDEV=/proc/net/pktgen/pgrx
pgset "rx_reset"

PGDEV=/proc/net/pktgen/pgctrl
pgset "start"

cat /proc/net/pktgen/$TX
cat /proc/net/pktgen/pgrx
PGDEV=/proc/net/pktgen/pgrx
pgset "display script"
cat /proc/net/pktgen/pgrx
pgset "rx_disable"
cat /proc/net/pktgen/pgrx
