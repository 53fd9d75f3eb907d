#!/bin/sh
# Write CycloneDX documents of locked packages, with their hashes: write_sbom.sh CYCLONEDX_PY FOLDER LOCK...
set -eu
tool=$1
folder=$2
shift 2
mkdir -p "$folder"
for lock in "$@"; do
    "$tool" requirements --output-reproducible --output-format JSON --output-file "$folder/$lock.json" \
        "$(dirname "$0")/$lock.txt"
done
