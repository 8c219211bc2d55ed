# Runs the blocks of one page of the documents, in mount, PID and network namespaces of its own: labs, processes and
# files in /run and /tmp end with this script. Called with the folder of the blocks and that of the test; `plan` in the
# first one runs them.
#
# The namespace has the interfaces that the documents name. `device` is what the documents call the device under test,
# and `host-a` and `host-b` are two testers with one cable:
#
#   eth2 -- eth2 device eth3 -- eth3        host-a eth2 -- eth2 host-b
set -eu
dir=$1
keep=$2

mount -t tmpfs tmpfs /run
mkdir /run/netns
# Some containers permit no second /sys.
mount -t sysfs sysfs /sys 2>/dev/null || true
case "$dir $keep" in
  /tmp/* | *" /tmp/"*) ;;
  *) mount -t tmpfs tmpfs /tmp ;;
esac

# No proxy is here.
export no_proxy='*'

for host in device host-a host-b; do
  ip netns add "$host"
  ip -n "$host" link set lo up
done
ip link set lo up
for interface in eth0 eth2 eth3; do
  ip link add "$interface" type veth peer name "$interface" netns device
  ip link set "$interface" up
done
ip -n host-a link add eth2 type veth peer name eth2 netns host-b
for end in "device eth0" "device eth2" "device eth3" "host-a eth2" "host-b eth2"; do
  ip -n "${end% *}" link set "${end#* }" up
done

# Runs a block, and records its exit code and time. A block that waits for Ctrl-C gets it (`ctrl_c`), so none takes long.
run() {
  local code=0 began=$SECONDS
  timeout -k 5 60 bash -e "$dir/$1.sh" >"$dir/$1.log" 2>&1 </dev/null || code=$?
  echo "$1 $code" >>"$dir/codes"
  echo "$1 $((SECONDS - began)) s" >>"$dir/times"
}

# Waits until a command succeeds, for 30 s at most.
until_so() {
  local left=600
  until eval "$1" 2>/dev/null; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || return 0
    sleep 0.05
  done
}
export -f until_so

# Runs a command that has no end, and presses Ctrl-C after a second.
ctrl_c() {
  local code=0
  timeout --signal=INT --preserve-status 1 "$@" || code=$?
  [ "$code" = 0 ] || [ "$code" = 130 ]
}
export -f ctrl_c

# Starts nginx, which answers every request with 200, by the command in front of it: `web_server ip netns exec NODE`.
web_server() {
  mkdir -p nginx
  cat >nginx/nginx.conf <<'END'
user root;
pid nginx.pid;
error_log stderr;
events {}
http {
  access_log off;
  server { listen 80; listen 8080; location / { return 200; } }
}
END
  "$@" nginx -p "$PWD/nginx" -c nginx.conf
}
export -f web_server

cd "$dir/here"
. "$dir/plan"
