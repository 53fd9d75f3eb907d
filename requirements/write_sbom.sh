#!/bin/sh
# Write a CycloneDX document of each image's locked packages, with their hashes: write_sbom.sh CYCLONEDX_PY FOLDER
set -eu
here=$(dirname "$0")
mkdir -p "$2"
for lock in airflow mlflow trainer-cpu trainer-gpu; do
    "$1" requirements --output-reproducible --output-format JSON --output-file "$2/$lock.json" "$here/$lock.txt"
done
