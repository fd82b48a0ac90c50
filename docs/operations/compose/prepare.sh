#!/bin/sh
# Makes the secrets that compose.yaml mounts, in the folder "secrets" beside this; those that are there already stay.
#
# The folder is closed to all but you, and its files are readable: containers see the files alone, as users of their own.
# The broker's passwords are hashed by mosquitto_passwd; where that is not installed, by the one in the broker's image,
# which $ENGINE runs, or else podman, or else docker.
set -eu
umask 022
cd "$(dirname "$0")"
mkdir -p secrets
chmod 0700 secrets
cd secrets

if [ ! -s api-key ]; then
  printf 'key of the API: ' >&2
  IFS= read -r key
  printf '%s\n' "$key" >api-key
fi
for name in web-token mqtt-password subscriber-password; do
  [ -s "$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$name"
done

if [ ! -s mosquitto-passwords ]; then
  if command -v mosquitto_passwd >/dev/null; then
    set -- sh
  else
    if command -v podman >/dev/null; then found=podman; else found=docker; fi
    set -- "${ENGINE:-$found}" run --rm --interactive --network none docker.io/library/eclipse-mosquitto:2.0 sh
  fi
  # Through a file of its own: arguments of a program are seen by everybody on the machine.
  printf 'dockbell:%s\nsubscriber:%s\n' "$(cat mqtt-password)" "$(cat subscriber-password)" |
    "$@" -euc 'umask 077; file=$(mktemp); cat >"$file"; mosquitto_passwd -U "$file" >&2; cat "$file"; rm "$file"' >hashed
  mv hashed mosquitto-passwords
fi
