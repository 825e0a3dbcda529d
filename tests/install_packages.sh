#!/bin/sh
# Install Mosquitto and tmux from Debian's packages when this is root, or say how.
set -u
PATH="$PATH:/usr/sbin"
missing=""
for each in mosquitto tmux; do
    command -v "$each" >/dev/null 2>&1 || missing="$missing $each"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing from Debian's packages:$missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086 # several names
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
        exit 0
    fi
    echo "could not be installed:$missing"
fi
echo "not installed:$missing; the tests that need them will be skipped"
echo "  on Debian or Ubuntu: sudo apt-get update && sudo apt-get install$missing"
