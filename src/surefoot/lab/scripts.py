"""Shell scripts that run on hosts of the lab, as text. Pure; arguments come as ``$1 …``, never glued in."""

from __future__ import annotations

from surefoot.lab.configuration import GPU_DEVICE

SERVICE = "/usr/local/sbin/lab-service"
"""``lab-service start|stop|restart|kill|active NAME``: the same words in both tiers."""
DEVICES = "/usr/local/sbin/lab-devices"
INIT = "/usr/local/sbin/lab-init"

START_HOST = """\
set -eu
groups=$1 lower=$2 folder=$3; shift 3
for group in $groups; do mkdir -p "$group"; echo $$ >"$group/cgroup.procs"; done
mount -t overlay surefoot-lab -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
exec "$@"
"""
"""Runs on this machine, in the host's network and mount namespaces: cgroups, root, then what the host is."""

ENTER_ROOT = """\
set -eu
root=$1 host=$2 shared=$3 init=$4; shift 4
hostname "$host"
cd "$root"
# A /dev of its own: devices made on the host must not appear on this machine.
mount -t tmpfs -o mode=755,size=1m tmpfs dev
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${stream%:*}" "dev/${stream#*:}"; done
# What of this machine can be seen through them can't be written.
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
cut -d " " -f 5 /proc/self/mountinfo | grep "^$root/sys/fs/cgroup" | while read -r point; do
    mount -o remount,bind,ro "$point"
done
for place in run tmp dev/shm; do mount -t tmpfs -o mode=1777,size=10% tmpfs "$place"; done
chmod 755 run
mkdir -p ".$shared" home
mount --bind "$shared" ".$shared"
mount --bind "$shared/home" home
for folder in "$@"; do
    mkdir -p ".$folder"
    mount --bind "$folder" ".$folder"
    mount -o remount,bind,ro ".$folder"
done
exec chroot . "$init"
"""
"""The namespaces tier, as process 1 of the host: what systemd-nspawn does in the other one."""

SERVICE_SYSTEMD = """\
#!/bin/sh
# lab-service start|stop|restart|kill|active NAME
case $1 in
kill)
    systemctl kill --kill-who=main --signal=KILL "$2"
    # it has only been sent
    for turn in $(seq 100); do systemctl is-active --quiet "$2" || exit 0; sleep 0.05; done
    exit 1 ;;
active) exec systemctl is-active --quiet "$2" ;;
*) systemctl reset-failed "$2" 2>/dev/null; exec systemctl "$1" "$2" ;;
esac
"""

SERVICE_PLAIN = """\
#!/bin/bash
# lab-service start|stop|restart|kill|active NAME: there is no systemd on this host
case $2 in
munge) file=/run/munge/munged.pid; start=(runuser -u munge -- /usr/sbin/munged) ;;
ssh) file=/run/sshd.pid; start=(/usr/sbin/sshd) ;;
slurmd | slurmctld) file=/run/$2.pid; start=("/usr/sbin/$2") ;;
*) echo "lab-service: $2 does not exist in this tier" >&2; exit 5 ;;
esac
pid=$(cat "$file" 2>/dev/null) || pid=
active() { [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; }
halt() {
    active || return 0
    kill "-$1" "$pid"
    # slurmd that could not register ignores TERM
    for turn in $(seq 50); do active || return 0; sleep 0.1; done
    kill -KILL "$pid"
    sleep 0.2
}
case $1 in
active) active ;;
kill) halt KILL ;;
stop) halt TERM ;;
start) active || exec "${start[@]}" ;;
restart) halt TERM; exec "${start[@]}" ;;
esac
"""

INIT_PLAIN = """\
#!/bin/bash
# Process 1 of a host without systemd: lab-services in order, then wait for orphans.
mkdir -p /run/sshd
install -d -o munge -g munge /run/munge
lab-devices
while read -r name; do lab-service start "$name"; done </etc/lab-services
trap 'exit 0' TERM
while :; do sleep 3600 & wait; done
"""


def devices_script(gpus: int) -> str:
    """Makes the device files of pretended GPUs, where they are missing."""
    return (
        f"#!/bin/sh\nnumber=0\nwhile [ $number -lt {gpus} ]; do\n"
        f"    [ -e {GPU_DEVICE}$number ] || mknod -m 666 {GPU_DEVICE}$number c 195 $number\n"
        "    number=$((number + 1))\ndone\n"
    )
