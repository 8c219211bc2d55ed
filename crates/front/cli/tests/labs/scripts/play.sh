#!/bin/bash
# Writes the commands of a list, each a line of file and words, and prints what becomes of it.
#
#   play.sh LIST INTERFACE

cd /proc/net/pktgen || exit 1
while read -r file words; do
    file=${file//IF/$2}
    words=${words//IF/$2}
    echo "> $file: $words"
    echo "$words" > "$file" || echo "refused"
    case $file in
        pgctrl) ;;
        *) sed -n '/^Result:/,$p' "$file" ;;
    esac
    if [ "$words" = start ]; then
        for device in $2 $2@*; do
            [ -e "$device" ] && echo "= $device" && cat "$device"
        done
    fi
done 2>/dev/null < "$1"
exit 0
