#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start nodes in the network, mount and process namespaces of this shell, and run a command on the first one.
#
#     namespaces.sh COUNT RATE RAY COMMAND...
#
# A bridge connects the nodes, and the kernel limits what each of them sends and receives (tc tbf). Each node has a
# raylet. This shell is the first process of the process namespace: when it ends, the kernel ends all other processes,
# and removes the networks and the memory of the nodes.
set -eu
count=$1 rate=$2 ray=$3
shift 3
trap : INT # the command gets the signal too, and ends its run

# Run a command; if it fails, print the last line of its output and end.
check() {
    output=$("$@" 2>&1) || {
        echo "error: $*: $(echo "$output" | tail -n 1)" >&2
        exit 1
    }
}

on_node() {
    process=$1
    shift
    nsenter --target "$process" --net --mount --ipc --wd "$@"
}

start_node() {
    # A process that only sleeps keeps the namespaces of the node. With one IPC namespace for all nodes, UCX would read
    # the memory of processes of other nodes instead of sending.
    setsid unshare --net --mount --ipc sleep infinity &
    process=$!
    until [ "$(readlink "/proc/$process/ns/ipc")" != "$(readlink /proc/self/ns/ipc)" ]; do
        check kill -0 "$process"
        sleep 0.01
    done
    check ip link add "node$1" type veth peer name eth0 netns "$process"
    check ip link set "node$1" master bridge up
    check on_node "$process" ip link set lo up
    check on_node "$process" ip address add "10.77.0.$1/24" dev eth0
    check on_node "$process" ip link set eth0 up
    check on_node "$process" tc qdisc add dev eth0 root tbf rate "$rate" burst 4mb latency 50ms # what the node sends
    check tc qdisc add dev "node$1" root tbf rate "$rate" burst 4mb latency 50ms # what it receives
    check on_node "$process" mount -t tmpfs -o size=50% tmpfs /dev/shm
    check on_node "$process" mkdir "$TMPDIR"
    if [ "$1" = 1 ]; then
        first=$process
        set -- "$1" --head --port=6379 --include-dashboard=false --temp-dir=/dev/shm/ray
    else
        set -- "$1" --address=10.77.0.1:6379
    fi
    address=10.77.0.$1
    shift
    check on_node "$process" setsid timeout 60 "$ray" start "$@" "--node-ip-address=$address" --num-cpus=4 \
        --object-store-memory=3221225472 --disable-usage-stats
}

check ip link set lo up
check ip link add bridge type bridge
check ip link set bridge up
for number in $(seq "$count"); do
    start_node "$number"
done
on_node "$first" "$@" || exit $?
