#!/bin/sh
# What the image file runs as root. ROOT is another root folder, for trying it without a container.
#   install.sh packages REQUIREMENT [CONSTRAINTS]   a virtual environment with fedcommons
#   install.sh account                              the account that everything runs as, its folders
set -eu
root=${ROOT:-}
id=10001

case ${1:-} in
packages)
    [ -x "$root/opt/fedcommons/bin/python" ] || python3 -m venv "$root/opt/fedcommons"
    "$root/opt/fedcommons/bin/python" -m pip install --no-cache-dir --disable-pip-version-check \
        ${3:+--constraint "$3"} "$2"
    "$root/opt/fedcommons/bin/python" -m fedcommons --version
    ;;
account)
    useradd ${root:+--prefix "$root"} --uid $id --user-group --no-create-home \
        --home-dir /srv --shell /usr/sbin/nologin federation
    for folder in federation site post state; do
        install --directory --owner=$id --group=$id --mode=700 "$root/srv/$folder"
    done
    ;;
*)
    echo "install.sh: packages or account, got '${1:-}'" >&2
    exit 2
    ;;
esac
