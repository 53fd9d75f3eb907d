#!/bin/sh
# Print the images that docker-compose.yaml takes from registries, by the digests of what this engine has pulled:
#
#   sh images/pin.sh >> .env
#
# Pull them first: docker-compose pull postgres s3 triton prometheus grafana; docker pull python:3.12-slim
set -eu
cd "$(dirname "$0")/.."
grep --only-matching '\${[A-Z0-9]*_IMAGE:-[^}]*}' docker-compose.yaml | tr -d '${}' | sort -u |
while IFS= read -r line; do
    name=${line%%:-*} image=${line#*:-}
    case $image in dmls-*) continue ;; esac
    echo "$name=$(docker image inspect --format '{{index .RepoDigests 0}}' "$image")"
done
