#!/bin/sh
# Print the images that docker-compose.yaml names without a digest, by the digests of what this engine has pulled:
#
#   docker-compose pull triton
#   sh images/pin.sh >> .env
set -eu
cd "$(dirname "$0")/.."
grep --only-matching '\${[A-Z0-9]*_IMAGE:-[^}]*}' docker-compose.yaml | tr -d '${}' | sort -u |
while IFS= read -r line; do
    name=${line%%:-*} image=${line#*:-}
    case $image in dmls-* | *@sha256:*) continue ;; esac
    echo "$name=$(docker image inspect --format '{{index .RepoDigests 0}}' "$image")"
done
