#!/usr/bin/env bash
# Makes `.venv` in the project's root, so that `.venv/bin/surefoot` is the command.
#
#   scripts/setup.sh [climb|test|lab]
#
# climb  what `surefoot climb` needs: torch, transformers, peft, matplotlib
# test   that, and what `make check` needs: linters, pytest, and Chromium for the report's test
# lab    that, and the system packages below that tests on a real Slurm, sshd and lab need: with
#        apt-get, as root. No service is started, now or at the next boot; what is there stays as it is
#
# Versions are pinned in constraints.txt. Without an NVIDIA GPU torch's CPU build is installed.
# A second call finds its own stamp and is done; one that was interrupted starts over.
# SUREFOOT_PYTHON names the interpreter to use, where the one that would be found is not wanted.
set -euo pipefail

readonly TORCH=2.13.0
readonly CPU_INDEX=${SUREFOOT_TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}
readonly OLDEST=3.11
# What the lab (docs/lab.md) and the Slurm of the tests (docs/slurm.md) use: program or file:package. The last
# line is for tests of what Ansible makes of hosts: they write apt repositories, and compile as a role does.
readonly LAB_NEEDS=(
    slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge
    slurmdbd:slurmdbd mariadbd:mariadb-server-core mariadb-install-db:mariadb-server-core my_print_defaults:mariadb-client-core
    sshd:openssh-server ssh:openssh-client ssh-keygen:openssh-client
    mmdebstrap:mmdebstrap systemd-nspawn:systemd-container socat:socat ip:iproute2 tc:iproute2
    nsenter:util-linux unshare:util-linux setpriv:util-linux
    /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
    dpkg-scanpackages:dpkg-dev make:make gcc:g++ g++:g++
)
readonly LAB_UNITS=(slurmctld.service slurmd.service slurmdbd.service munge.service ssh.service ssh.socket)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
venv=$root/.venv
stamp=$venv/surefoot-setup
asked=${1:-climb}
profile=$asked
log=""
started=$SECONDS
step=0

say() { printf 'set-up: %s\n' "$*"; }

stop() { # what is wrong, what to do
    printf 'set-up: %s\n  → %s\n' "$1" "$2" >&2
    exit 1
}

begin() {
    step=$((step + 1))
    printf 'set-up: %d/%d %s\n' "$step" "$steps" "$1"
    step_started=$SECONDS
}

end() { printf 'set-up:     %s%d s\n' "${1:+$1, }" "$((SECONDS - step_started))"; }

quietly() { # run a command; show what it said only when it fails
    log=$(mktemp)
    "$@" >"$log" 2>&1 && rm -f "$log"
}

show_log() {
    printf '\n--- the last lines of what it said -----------------------------------\n' >&2
    tail -n "${1:-40}" "$log" >&2
    printf -- '----------------------------------------------------------------------\n' >&2
    rm -f "$log"
}

# --- what is here -------------------------------------------------------------------------------

has_gpu() {
    [ -e /proc/driver/nvidia/version ] ||
        { command -v nvidia-smi >/dev/null && timeout 10 nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
}

digest() { # of everything that decides what is installed
    cat pyproject.toml constraints.txt scripts/setup.sh <(printf '%s %s %s' "$build" "$TORCH" "$root") | sha256sum | cut -d' ' -f1
}

level() { # of a profile: each has all that those below it have
    case "$1" in climb) echo 1 ;; test) echo 2 ;; lab) echo 3 ;; *) echo 0 ;; esac
}

stamped() { # the value of a key in the stamp
    sed -n "s/^$1=//p" "$stamp" 2>/dev/null || true
}

write_stamp() { # complete or busy
    printf 'state=%s\nroot=%s\nprofile=%s\ndigest=%s\n' "$1" "$root" "$profile" "$wanted" >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

is_complete() {
    [ "$(stamped state)" = complete ] && [ "$(stamped digest)" = "$wanted" ] && [ "$(stamped root)" = "$root" ] || return 1
    [ "$(level "$(stamped profile)")" -ge "$(level "$profile")" ] || return 1
    if [ "$asked" = lab ] && [ -n "$(lab_lacks)" ]; then return 1; fi
    "$venv/bin/python" -c '' 2>/dev/null && [ -x "$venv/bin/surefoot" ]
}

python_of() { # the first interpreter that is new enough; with "whole": that can make environments too
    local candidate
    for candidate in ${SUREFOOT_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3}; do
        if "$candidate" - "$OLDEST" "${1:-}" <<'PYTHON' 2>/dev/null; then
import sys
assert sys.version_info >= tuple(map(int, sys.argv[1].split(".")))
if sys.argv[2]:
    import ensurepip, venv
PYTHON
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# --- system packages ----------------------------------------------------------------------------

can_be_root() { # at once, or by a password that somebody is there to give
    [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; elif sudo -n true 2>/dev/null; then sudo -n "$@"; else sudo "$@"; fi
}

apt_install() { # packages; fails where there is no apt, or no right to use it
    command -v apt-get >/dev/null && can_be_root || return 1
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120)
    # 9 is the lock: what a package starts must not hold it.
    # The update may fail for one source and still bring what is needed: only the install decides.
    quietly as_root "${apt[@]}" update -q 9>&- || rm -f "$log"
    quietly without_services "${apt[@]}" install -qy --no-install-recommends "$@" 9>&- || {
        show_log 15
        return 1
    }
}

need_python() {
    begin "Python ≥ $OLDEST"
    if ! python=$(python_of whole); then
        # Debian and Ubuntu keep ensurepip apart: python3 is there, `python3 -m venv` fails.
        say "    installing python3 and python3-venv with apt-get"
        apt_install python3 python3-venv || true
        python=$(python_of whole) || stop "no Python ≥ $OLDEST that can make virtual environments was found" \
            "install it (Debian, Ubuntu: sudo apt-get install python3 python3-venv), or name one: SUREFOOT_PYTHON=/path/to/python3.12 scripts/setup.sh"
    fi
    end "$("$python" -c 'import sys; print(sys.version.split()[0], "at", sys.executable)')"
}

need_browser() {
    begin "Chromium, for the test of the report"
    local browser=""
    for browser in chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$browser" >/dev/null; then end "$(command -v "$browser")" && return; fi
    done
    if apt_install chromium; then end "installed with apt-get"; else
        say "    not installed: the browser test will fail until one is (Debian: sudo apt-get install chromium)"
    fi
}

lab_lacks() { # packages of LAB_NEEDS of which something is not here
    local need what path=$PATH:/usr/sbin:/sbin
    for need in "${LAB_NEEDS[@]}"; do
        what=${need%%:*}
        if [ -e "$what" ] || PATH=$path command -v "$what" >/dev/null; then continue; fi
        printf '%s\n' "${need#*:}"
    done | sort -u | paste -sd ' '
}

without_services() { # run a command as root while nothing that is installed may start, now or at the next boot
    # One process, so that whatever ends it, what it changed on the machine is put back. The word
    # in the file finds what even that could not: a set-up that was killed.
    as_root env UNITS="${LAB_UNITS[*]}" bash -c '
        set -u
        policy=/usr/sbin/policy-rc.d kept=/usr/sbin/policy-rc.d.surefoot-kept
        put_back() {
            if [ -e "$kept" ]; then mv -f "$kept" "$policy"; elif grep -qs "surefoot set-up" "$policy"; then rm -f "$policy"; fi
        }
        enabled() { for unit in $UNITS; do systemctl is-enabled --quiet "$unit" 2>/dev/null && echo "$unit"; done; true; }
        put_back
        before=" $(enabled | paste -sd " ") "
        trap put_back EXIT
        trap "exit 130" INT TERM HUP
        if [ -e "$policy" ]; then mv "$policy" "$kept"; fi
        printf "#!/bin/sh\n# surefoot set-up: nothing starts while packages are installed\nexit 101\n" >"$policy"
        chmod 755 "$policy"
        "$@"
        code=$?
        for unit in $(enabled); do
            case $before in *" $unit "*) ;; *) systemctl disable --quiet "$unit" ;; esac
        done
        exit $code' bash "$@"
}

need_lab() {
    begin "system packages of the tests on a real Slurm"
    local lacking
    lacking=$(lab_lacks)
    if [ -z "$lacking" ]; then
        end "there already"
        return
    fi
    local by_hand="as root: apt-get update && apt-get install --no-install-recommends $lacking"
    command -v apt-get >/dev/null || stop "not installed: $lacking; and there is no apt-get here" \
        "install what has these programs by this system's own means: ${LAB_NEEDS[*]%%:*}"
    can_be_root || stop "not installed: $lacking; and user $(id -un) may not install packages" "$by_hand"
    say "    installing $lacking"
    # shellcheck disable=SC2086 # package names
    apt_install $lacking || stop "apt-get could not install $lacking" \
        "read the lines above: see that apt-get update works here (network, proxy, sources), then run it again; or $by_hand"
    lacking=$(lab_lacks)
    [ -z "$lacking" ] || stop "still missing after apt-get: $lacking" "dpkg -L $lacking shows what these packages hold; $by_hand"
    end "installed; no service was started"
}

# --- the environment ----------------------------------------------------------------------------

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

pip_install() { # what it is for people, then pip's arguments
    local what=$1
    shift
    quietly pip install --progress-bar off "$@" || {
        show_log
        stop "pip could not install $what" "read the lines above: no network or a wrong index (pip config list), a full disk (df -h .), or no wheel for this Python; then run it again"
    }
}

need_venv() {
    begin "virtual environment .venv"
    local state
    state=$(stamped state)
    # An unfinished one, or one that was moved here, cannot be trusted file by file. One without a
    # stamp was made by hand: it is used as it is, if it works.
    if [ -e "$venv" ] && { [ "$state" = busy ] || { [ -n "$state" ] && [ "$(stamped root)" != "$root" ]; } ||
        ! "$venv/bin/python" -c "import pip, sys; assert sys.version_info >= (${OLDEST/./, })" 2>/dev/null; }; then
        say "    the one that is there is incomplete: making it anew"
        rm -rf "$venv"
    fi
    if [ -e "$venv" ]; then
        write_stamp busy
        end "there already"
        return
    fi
    mkdir "$venv"
    write_stamp busy
    quietly "$python" -m venv "$venv" || {
        show_log
        stop "$python could not make a virtual environment" "install python3-venv (Debian, Ubuntu), then run it again"
    }
    end "made"
}

index_answers() {
    "$venv/bin/python" - "$1/torch/" <<'PYTHON' 2>/dev/null
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="HEAD"), timeout=5)
PYTHON
}

has_torch() {
    "$venv/bin/python" -c "from importlib.metadata import version; assert version('torch').split('+')[0] == '$TORCH'" 2>/dev/null
}

need_torch() {
    begin "torch $TORCH, $build build"
    if has_torch; then
        end "there already"
        return
    fi
    local plain=(-c constraints.txt "torch==$TORCH")
    if [ "$build" = CPU ] && index_answers "$CPU_INDEX"; then
        # --no-deps: that index has few packages, some of them old; the next step brings the rest.
        if quietly pip install --progress-bar off --no-deps --index-url "$CPU_INDEX" "torch==$TORCH"; then
            end "from $CPU_INDEX"
            return
        fi
        rm -f "$log"
        say "    $CPU_INDEX has no wheel for this machine; taking pip's own index"
    elif [ "$build" = CPU ]; then
        say "    $CPU_INDEX does not answer; taking pip's own index (its build may be the CUDA one: several GB)"
    fi
    pip_install torch "${plain[@]}"
    end "$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("torch"))')"
}

need_surefoot() {
    begin "surefoot and what it builds on"
    local extras=train,report,ansible
    if [ "$(level "$profile")" -ge 2 ]; then extras+=,dev; fi
    pip_install surefoot -c constraints.txt -e ".[$extras]"
    if ! quietly "$venv/bin/python" -c 'import torch, transformers, peft, matplotlib, surefoot'; then
        show_log
        stop "what was installed cannot be imported" "remove .venv and run it again; if it stays so, the lines above say which package is at fault"
    fi
    end "$("$venv/bin/python" -c 'import torch; print("torch", torch.__version__, "sees", torch.cuda.device_count(), "GPUs")')"
}

# --- in order -----------------------------------------------------------------------------------

if [ "$(level "$asked")" = 0 ]; then stop "no profile '$asked'; there are climb, test and lab" "scripts/setup.sh climb"; fi
if has_gpu; then build=CUDA; else build=CPU; fi
wanted=$(digest)
if is_complete; then exit 0; fi

exec 8>&2 # while a command runs quietly, the trap must still be heard
trap 'rm -f "$log"; say "interrupted; run it again: it starts over where it must" >&8; exit 130' INT TERM HUP
if command -v flock >/dev/null; then
    exec 9<scripts/setup.sh
    flock -n 9 || { say "another set-up is at work here; waiting for it" && flock 9; }
    if is_complete; then exit 0; fi
fi
# An environment for tests stays one: `make climb` after a change does not take the tools away.
if [ "$(level "$(stamped profile)")" -gt "$(level "$asked")" ]; then profile=$(stamped profile); fi
steps=4
if [ "$(level "$profile")" -ge 2 ]; then steps=5; fi
if [ "$asked" = lab ]; then steps=6; fi

say "this takes a minute or so, once; .venv/bin/surefoot is the command afterwards"
if [ "$asked" = lab ]; then need_lab; fi # first: what only a person can mend is said at once
need_python
need_venv
need_torch
need_surefoot
if [ "$(level "$profile")" -ge 2 ]; then need_browser; fi
write_stamp complete
say "done in $((SECONDS - started)) s"
