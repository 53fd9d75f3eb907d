#!/bin/sh
# Put the locked uv into the folder given, with the Python given: fetch_uv.sh PYTHON FOLDER
set -eu
python=$1
folder=$2
lock=$(dirname "$0")/../requirements/uv.txt

rm -rf "$folder"
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian and Ubuntu keep venv and pip in a package of their own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "installing python$version-venv, which this Python lacks"
        export DEBIAN_FRONTEND=noninteractive
        install() { apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "python$version-venv"; }
        install >/dev/null 2>&1 || { apt-get -o DPkg::Lock::Timeout=300 update -qq && install >/dev/null; }
    else
        echo "$python cannot make virtual environments: install its venv package" \
            "(Debian, Ubuntu: apt-get install python3-venv) and try again" >&2
        exit 1
    fi
fi
"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "$lock"
