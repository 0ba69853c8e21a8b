#!/bin/sh
# What the containers of compose.yaml do, each by one word. All state is in four folders, which are
# volumes: the server's, its state-dir, a site's, and `post`, by which people would send each other
# kits, public keys and identities. No private key ever is in `post`.
set -eu
SERVER_FOLDER=${SERVER_FOLDER:-/srv/federation}
STATE_FOLDER=${STATE_FOLDER:-/srv/state}
SITE_FOLDER=${SITE_FOLDER:-/srv/site}
POST=${POST:-/srv/post}
SITES=${SITES:-site-0 site-1 site-2 site-3 site-4}
HOST=${HOST:-server}
FLEET_PORT=${FLEET_PORT:-9092}
LINK_PORT=${LINK_PORT:-8000}
FLEET_ADDRESS=${FLEET_ADDRESS:-0.0.0.0}
DIGITS=${DIGITS:-/opt/fedcommons/share/digits.py}
umask 077
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
unset PYTHONDONTWRITEBYTECODE || true

wait_for() { # a file, for ten minutes
    n=0
    until [ -e "$1" ]; do
        n=$((n + 1))
        [ $n -le 600 ] || { echo "federation: $1 did not come" >&2; exit 1; }
        sleep 1
    done
}

put() { # a file into the post, whole or not at all
    cp "$1" "$POST/.$2.part"
    mv "$POST/.$2.part" "$POST/$2"
}

as_operator() {
    export FLWR_HOME="$SERVER_FOLDER/flower"
    cd "$SERVER_FOLDER"
}

case ${1:-} in
prepare) # the authority, the configuration of nginx, an app, a kit for each site
    as_operator
    mkdir -p flower
    [ -e tls/server.pem ] || fedcommons federate tls tls --host "$HOST"
    fedcommons federate tls tls --renew --within 60
    fedcommons federate proxy proxy --tls tls --listen "$FLEET_ADDRESS:$FLEET_PORT" \
        --superlink "127.0.0.1:$LINK_PORT"
    [ -d digits ] || fedcommons federate new digits
    cat > flower/config.toml <<END
[superlink.federation]
address = "127.0.0.1:$LINK_PORT"
root-certificates = "$SERVER_FOLDER/tls/ca.pem"
END
    set --
    for site in $SITES; do set -- "$@" --site "$site"; done
    fedcommons federate kit kits --tls tls --server "$HOST:$FLEET_PORT" --app digits "$@"
    for site in $SITES; do put "kits/$site.tar.gz" "$site.tar.gz"; done
    ;;
superlink) # on loopback; the proxy is in front of it, in the same network
    as_operator
    exec flower-superlink --host 127.0.0.1 --port "$LINK_PORT" --ssl-ca-certfile tls/ca.pem \
        --ssl-certfile tls/superlink.pem --ssl-keyfile tls/superlink.key \
        --enable-supernode-auth --database superlink.db
    ;;
proxy)
    exec nginx -e stderr -p "$SERVER_FOLDER/proxy" -c "$SERVER_FOLDER/proxy/nginx.conf"
    ;;
register) # let the sites in, each once
    as_operator
    for site in $SITES; do
        wait_for "$POST/$site.pub"
        [ ! -e "registered-$site" ] || continue
        flwr supernode register "$POST/$site.pub" federation
        touch "registered-$site"
    done
    ;;
site) # unpack the kit, make keys, get to know the others, start
    [ -n "${SITE:-}" ] || { echo "federation: SITE must be the site's name" >&2; exit 2; }
    cd "$SITE_FOLDER"
    if [ ! -e site.toml ]; then
        wait_for "$POST/$SITE.tar.gz"
        tar -xzf "$POST/$SITE.tar.gz" --strip-components=1
    fi
    fedcommons federate join .
    put node.pub "$SITE.pub"
    fedcommons federate identity store > identity.txt
    put identity.txt "$SITE.identity"
    if [ ! -e joined ]; then
        echo "[peers]" > peers.toml
        for other in $SITES; do
            [ "$other" != "$SITE" ] || continue
            wait_for "$POST/$other.identity"
            echo "$other = \"$(cat "$POST/$other.identity")\"" >> peers.toml
        done
        # Here a person reads the app first.
        echo "apps = [\"$(fedcommons federate review app --hash)\"]" >> store/policy.toml
        [ -z "${NODE_PORT:-}" ] || sed -i "s/^# port = 9094/port = $NODE_PORT/" site.toml
        if [ ! -e data.npz ]; then
            # shellcheck disable=SC2086 # the names are words
            python "$DIGITS" "$SITE" $SITES
            sed -i 's/^# held-out = /held-out = /' site.toml
        fi
        touch joined
    fi
    exec fedcommons federate start .
    ;;
run) # the exchange and training; what follows are settings, as 'num-rounds=10'
    as_operator
    shift
    n=0
    for site in $SITES; do n=$((n + 1)); done
    flwr run digits federation --stream \
        --run-config "sites=$n state-dir=\"$STATE_FOLDER\" $*"
    ;;
healthy-superlink)
    exec python -c "
import sys; from pathlib import Path
from fedcommons.federate.deploy.superlink import is_healthy
sys.exit(not is_healthy($LINK_PORT, Path('$SERVER_FOLDER/tls/ca.pem')))"
    ;;
healthy-proxy)
    exec python -c "
import socket
socket.create_connection(('127.0.0.1', $FLEET_PORT), 5).close()"
    ;;
healthy-site)
    exec fedcommons federate check "$SITE_FOLDER"
    ;;
*)
    echo "federation: what to do must be prepare, superlink, proxy, register, site, run or healthy-..." >&2
    exit 2
    ;;
esac
