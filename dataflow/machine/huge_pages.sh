#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Change which memory gets huge pages, run a command, and restore the settings. Only root can do it.
#
#     huge_pages.sh PRIVATE SHARED COMMAND...
#
# PRIVATE says which private memory gets them: always, madvise or never. SHARED says which files in /dev/shm: always,
# within_size, advise or never. All programs of the machine get them meanwhile, and may keep them.
set -eu
setting=/sys/kernel/mm/transparent_hugepage/enabled

fail() {
    echo "error: huge_pages.sh: $1" >&2
    exit 2
}

restore() {
    trap '' INT HUP TERM
    set +e
    echo "$private_before" > $setting
    mount -o "remount,huge=$shared_before" /dev/shm
}

[ $# -ge 3 ] || fail "give PRIVATE SHARED COMMAND..., such as always never sleep 1"
private=$1 shared=$2
shift 2
case $private in
    always | madvise | never) ;;
    *) fail "$private: give always, madvise or never" ;;
esac
case $shared in
    always | within_size | advise | never) ;;
    *) fail "$shared: give always, within_size, advise or never" ;;
esac
[ -e $setting ] || fail "this kernel has no transparent huge pages ($setting)"
[ "$(id -u)" = 0 ] || fail "only root can change $setting: run it as root"

# As common/record.py: no other measurement of the suite runs meanwhile. The command takes another lock.
exec 9< "${DATA_FLOW_LOCK:-/dev/shm}"
flock 9
private_before=$(sed 's/.*\[\(.*\)\].*/\1/' $setting)
options=$(sed -n 's|^[^ ]* /dev/shm tmpfs \([^ ]*\).*|\1|p' /proc/mounts | tail -n 1)
shared_before=$(echo "$options" | tr , '\n' | sed -n 's/^huge=//p')
shared_before=${shared_before:-never}

trap restore EXIT
trap : INT # the command gets the signal too, and ends its run
trap 'exit 129' HUP
trap 'exit 143' TERM
echo "$private" > $setting
mount -o "remount,huge=$shared" /dev/shm
DATA_FLOW_LOCK=$(dirname $setting) "$@" 9<&-
