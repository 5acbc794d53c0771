# Waits until Slurm answers here: the controllers, and of a node that it has registered. Says on standard
# output what it saw last; ends with 1 where the time is over. Changes nothing.
#   bash -euc "$(cat answers.sh)" answers SECONDS NODE|- CONTROLLER|-
# CONTROLLER: the host whose slurmctld must answer, whichever of them controls now.
seconds=$1 node=$2 controller=$3
deadline=$((SECONDS + seconds))
controls() {
    [ "$controller" != - ] || return 0
    # A backup that hangs has an active service and no open port: only another's question tells.
    seen=$(timeout 20 scontrol ping 2>&1) || true
    [[ $seen == *" at $controller is UP"* || $seen == *"are UP"* ]]
}
registered() {
    [ "$node" != - ] || return 0
    seen=$(sinfo -h -N -n "$node" -o '%T|%E' 2>&1 | head -n 1) || true
    # Drained by someone is registered as well; * means that it does not respond.
    [[ ${seen%%|*} =~ ^(idle|mixed|allocated|allocated\+|completing|planned|reserved|maint|drained|draining|blocked)[$%@^!~#-]*$ ]]
}
until controls && registered; do
    if ((SECONDS >= deadline)); then
        echo "${seen:-no answer}"
        exit 1
    fi
    sleep 0.3
done
echo "$seen"
