#!/usr/bin/env bash
# Walks the README's two commands on a minimal Debian machine, twice: `make fresh [SCALE=0.05] [ROUNDS=2]`. Other targets of the Makefile
# in another Debian: `make fresh SUITE=sid COMMANDS=packages`.
#
# Makes a root with debootstrap, clones this checkout's HEAD into its /root (a closed folder, as a user's home is), and runs
# `make demo` and `make test` there with nothing of this machine but its addresses: apt's sources, proxies, certificates,
# pip's index. Mounts and processes are those of a namespace, and end with it, however this script ends.
# PYTEST_ADDOPTS is handed on, so that a part of the suite can be walked: PYTEST_ADDOPTS=tests/unit make fresh.
set -euo pipefail

SCALE=${SCALE:-0.05}
ROUNDS=${ROUNDS:-2}
TESTERS=${TESTERS:-2}
SUITE=${SUITE:-}
COMMANDS=${COMMANDS:-demo test}
PYTHONS=${PYTHONS:-}
PLACE=${FRESH_FOLDER:-/var/tmp}
NEEDED_GIGABYTES=10
PACKAGES=python3,python3-venv,make,git,ca-certificates
# Where an organisation says how its machines reach Debian and PyPI.
ADDRESSES=(/etc/resolv.conf /etc/hosts /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/preferences.d
    /etc/apt/auth.conf.d /etc/apt/keyrings /etc/apt/trusted.gpg.d /etc/ssl/certs/ca-certificates.crt
    /etc/pip.conf)

main() {
    case "${1:-}" in
        inside) walk ;;
        *) outside ;;
    esac
}

outside() {
    name_what_is_missing
    remove_what_was_killed
    CHECKOUT=$(cd "$(dirname "$0")/.." && pwd)
    [ -z "$(git -C "$CHECKOUT" status --porcelain)" ] || echo "Only what is committed is walked; this checkout has more."
    FRESH=$(mktemp -d "$PLACE/tripstore-fresh-XXXXXX")
    FRESH_ROOT=$FRESH/root
    export SCALE ROUNDS TESTERS SUITE COMMANDS PYTHONS CHECKOUT FRESH FRESH_ROOT
    trap clean_up EXIT
    trap 'exit 130' INT TERM HUP
    exec {lock}>"$FRESH/lock"
    flock "$lock"
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child bash "$0" inside &
    walker=$!
    wait "$walker"
}

# The namespace ends with its first process, and its mounts with it: then nothing of this machine is below the folder.
clean_up() {
    [ -z "${walker:-}" ] || kill -KILL "$walker" 2>/dev/null || true
    wait || true
    rm -rf --one-file-system "$FRESH"
}

# A script that was killed by -9 took its processes along, and left its folder; its lock is free.
remove_what_was_killed() {
    local folder
    for folder in "$PLACE"/tripstore-fresh-*; do
        [ ! -e "$folder/lock" ] || flock --nonblock "$folder/lock" rm -rf --one-file-system "$folder" || true
    done
}

name_what_is_missing() {
    local missing=() program free
    [ "$(id -u)" = 0 ] || missing+=("the rights of root")
    for program in debootstrap git; do
        command -v "$program" >/dev/null || missing+=("$program (apt-get install $program)")
    done
    command -v unshare setpriv flock >/dev/null || missing+=("unshare, setpriv and flock (apt-get install util-linux)")
    unshare --mount --pid --fork true 2>/dev/null || missing+=("the right to make namespaces (a container may lack it)")
    free=$(df --output=avail --block-size=1G "$PLACE" | tail -1)
    [ "$free" -ge "$NEEDED_GIGABYTES" ] || missing+=("$NEEDED_GIGABYTES GB in $PLACE (FRESH_FOLDER=… names another place)")
    [ ${#missing[@]} = 0 ] || {
        printf 'make fresh cannot run here. Missing: %s\n' "${missing[@]}" >&2
        exit 2
    }
}

walk() {
    local round command failed=0
    mount --make-rprivate /
    timed "debootstrap" make_root || exit 1
    copy_addresses
    mount_kernel
    git clone --quiet --no-hardlinks "$CHECKOUT" "$FRESH_ROOT/root/tripstore"
    for round in $(seq "$ROUNDS"); do
        echo "round $round of $ROUNDS"
        for command in $COMMANDS; do
            timed "make $command SCALE=$SCALE" in_root make "$command" SCALE="$SCALE" TESTERS="$TESTERS" PYTHONS="$PYTHONS" || failed=1
        done
        nothing_stays_behind || failed=1
    done
    [ $failed = 1 ] || echo "green $ROUNDS times"
    return $failed
}

make_root() {
    local codename mirror
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Codename: $codename" | head -1)
    debootstrap --variant=minbase --include="$PACKAGES" "${SUITE:-$codename}" "$FRESH_ROOT" ${mirror:+"$mirror"} >"$FRESH/log" 2>&1 || {
        tail -20 "$FRESH/log" >&2
        return 1
    }
}

copy_addresses() {
    local path
    for path in "${ADDRESSES[@]}"; do
        [ -e "$path" ] || continue
        # Another Debian has its own list, by debootstrap.
        [[ -z "$SUITE" || "$path" != */sources.list* ]] || continue
        mkdir -p "$FRESH_ROOT$(dirname "$path")"
        cp --recursive --dereference --no-target-directory "$path" "$FRESH_ROOT$path"
    done
}

mount_kernel() {
    mount -t proc proc "$FRESH_ROOT/proc"
    mount -t tmpfs -o mode=755 tmpfs "$FRESH_ROOT/tmp"
    chmod 1777 "$FRESH_ROOT/tmp"
    mount --rbind /sys "$FRESH_ROOT/sys"
    mount --rbind /dev "$FRESH_ROOT/dev" # loop devices too: tests fill small disks
    mount -t tmpfs -o "size=80%,mode=1777" tmpfs "$FRESH_ROOT/dev/shm"
}

# A login's few variables, and what says how the outside is reached. This script's child ignores Ctrl-C; a login's do not.
in_root() {
    local name given=()
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE \
        PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT PIP_DEFAULT_TIMEOUT PYTEST_ADDOPTS; do
        [ -z "${!name:-}" ] || given+=("$name=${!name}")
    done
    chroot "$FRESH_ROOT" env --default-signal=INT,QUIT -i HOME=/root USER=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        "${given[@]}" bash -c 'cd ~/tripstore && exec "$@"' - "$@"
}

# After a run the janitor of its servers removes their files; a minute is far more than it needs.
nothing_stays_behind() {
    local left
    for _ in $(seq 60); do
        left=$(cd "$FRESH_ROOT" && ls -d tmp/* tmp/.[!.]* dev/shm/* var/tmp/* 2>/dev/null || true)
        left+=$(others)
        [ -n "$left" ] || return 0
        sleep 1 # the janitor is a process of its own that reports to none
    done
    printf 'Left behind after a run:\n%s\n' "$left" >&2
    (cd "$FRESH_ROOT" && find tmp dev/shm var/tmp -mindepth 2 -maxdepth 5 2>/dev/null | head -40 >&2) # which tells whose it is
    return 1
}

# Processes of the root: none is a service.
others() {
    local process
    for process in "$FRESH_ROOT"/proc/[0-9]*; do
        [ "$(readlink "$process/root" 2>/dev/null)" != "$FRESH_ROOT" ] || tr '\0' ' ' <"$process/cmdline" 2>/dev/null || true
    done
}

timed() {
    local what=$1 started=$SECONDS code=0
    shift
    "$@" || code=$?
    echo "$what: exit $code, $((SECONDS - started)) s"
    return $code
}

main "$@"
