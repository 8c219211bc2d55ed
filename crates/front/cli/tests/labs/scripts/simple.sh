#!/bin/bash
# What the files say and answer, from the first look to the end of a run.
#
#   simple.sh INTERFACE DST_MAC COUNT EXIT_CODE

cd /proc/net/pktgen || exit 1
dev=$1

stat -c '%n %A %s' kpktgend_0 pgctrl pgrx
cat pgctrl kpktgend_0 pgrx
echo rem_device_all > kpktgend_0
echo add_device $dev > kpktgend_0
stat -c '%n %A %s' $dev
[ -w $dev ] && [ -w pgctrl ] && echo "can be written"
cat $dev kpktgend_0
grep -c . $dev

echo add_device nosuch > kpktgend_0 || echo refused
grep Result: kpktgend_0

echo add_device $dev > kpktgend_0 || echo refused

echo sing > pgctrl || echo refused

echo inject > $dev || echo refused
grep Result: $dev
for setting in "count $3" "pkt_size 60" "dst 198.18.0.42" "src_min 198.18.0.1" "dst_mac $2" "flag nonsense"; do
    echo $setting > $dev
    sed -n '/^Result:/,$p' $dev
done
echo start > pgctrl && echo started
grep -v usec $dev | grep -v pps
cat kpktgend_0
echo Report
sed -n '/^Result:/,$p' $dev
echo reset > pgctrl
[ -e $dev ] && echo "still there"
exit $4
