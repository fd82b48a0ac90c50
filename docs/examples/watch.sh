#!/bin/sh
# Shows each change of a shipment once: sh watch.sh -h broker.example.com [more options of mosquitto_sub]
# The broker keeps for a day what comes while this does not run: a fixed client id, -c and -x ask for that.
seen=
mosquitto_sub -V 5 -q 1 -i dock-4 -c -x 86400 "$@" -t 'dockbell/event/+/shipments/+/+' -F '%j' |
  while IFS= read -r line; do
    id=${line#*'"payload":"'}
    id=${id#*evt_}
    id=${id%%[!0-9a-f]*}
    case $seen in *"$id"*) continue ;; esac # at least once: some come twice
    seen=$(printf '%.3200s' "$id $seen")    # the latest 96 ids
    topic=${line#*'"topic":"'}
    topic=${topic%%'"'*}
    change=${topic##*/}
    topic=${topic%/*}
    echo "shipment ${topic##*/}: $change"
  done
