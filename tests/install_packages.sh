#!/bin/sh
# Install Mosquitto, tmux and Chromium from Debian's packages when this is root, or say how.
set -u
PATH="$PATH:/usr/sbin"
missing=""
for each in mosquitto tmux chromium-headless-shell; do
    command -v "$each" >/dev/null 2>&1 || missing="$missing $each"
done
if command -v chromium >/dev/null 2>&1; then
    missing="${missing% chromium-headless-shell}"
fi
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing from Debian's packages:$missing"
    export DEBIAN_FRONTEND=noninteractive
    wanted="$missing"
    missing=""
    apt-get update -qq
    # One by one: other distributions lack some of them.
    for each in $wanted; do
        apt-get install -y -qq --no-install-recommends "$each" >/dev/null || missing="$missing $each"
    done
    [ -z "$missing" ] && exit 0
    echo "could not be installed:$missing"
fi
echo "not installed:$missing; the tests that need them will be skipped"
echo "  on Debian or Ubuntu: sudo apt-get update && sudo apt-get install$missing"
