#!/bin/sh
# The four classic tables of netperf's tutorials, over a wire of 100 Mbit/s and 1 ms each way: size of
# messages, buffers here, buffers there, streams. Needs root. A picture of each goes to the folder given.
#   examples/socket/tables.sh [FOLDER [SECONDS]]
set -eu
folder=${1:-.} seconds=${2:-20} lab=tables$$ server=
wirebench=${WIREBENCH:-wirebench}
trap 'if [ "$server" ]; then kill "$server" 2>/dev/null || :; fi; "$wirebench" lab down "$lab" >/dev/null' EXIT
"$wirebench" lab up impair --as "$lab" --rate 100mbit --delay 1ms --both --hosts >/dev/null
ip netns exec "wb-$lab-b" "$wirebench" netserver -D -p 4444 </dev/null >/dev/null &
server=$!
# Waits until the server listens.
until ip netns exec "wb-$lab-b" grep -q ':115C 0\{8,32\}:0000 0A' /proc/net/tcp /proc/net/tcp6; do
  kill -0 "$server"
  sleep 0.1
done
sweep() {
  name=$1
  shift
  echo "== $name"
  ip netns exec "wb-$lab-a" "$wirebench" sweep -q -H 198.19.1.2 -p 4444 --duration "${seconds}s" --plot "$folder/$name.svg" "$@"
}
sweep message --message 2Ki,4Ki,8Ki,16Ki
sweep local-buffer --local-buffer 2Ki,4Ki,8Ki,16Ki
sweep remote-buffer --remote-buffer 10922,21845,43960,87380
sweep streams --streams 1,2,3,4
