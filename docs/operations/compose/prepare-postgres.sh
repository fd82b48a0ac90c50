#!/bin/sh
# Makes the secrets that compose-postgres.yaml mounts, in the folder "secrets" beside this; those that are there already stay.
#
# The folder is closed to all but you, and its files are readable: containers see the files alone, as users of their own.
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
for name in web-token database-password; do
  [ -s "$name" ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$name"
done
printf 'database:5432:dockbell:dockbell:%s\n' "$(cat database-password)" >pgpass
