# Waits until Slurm answers here: the controller, and of a node that it has registered. Says on standard
# output what it saw last; ends with 1 where the time is over. Changes nothing.
#   bash -euc "$(cat answers.sh)" answers SECONDS NODE|-
seconds=$1 node=$2
deadline=$((SECONDS + seconds))
while :; do
    if [ "$node" = - ]; then
        # "is UP" of any controller: with a backup, one of them is enough.
        seen=$(scontrol ping 2>&1) || true
        [[ $seen == *" is UP"* || $seen == *"are UP"* || $seen == *"UP/"* ]] && break
    else
        seen=$(sinfo -h -N -n "$node" -o '%T|%E' 2>&1 | head -n 1) || true
        # Drained by someone is registered as well; * means that it does not respond.
        [[ ${seen%%|*} =~ ^(idle|mixed|allocated|allocated\+|completing|planned|reserved|maint|drained|draining|blocked)[$%@^!~#-]*$ ]] && break
    fi
    if ((SECONDS >= deadline)); then
        echo "${seen:-no answer}"
        exit 1
    fi
    sleep 0.3
done
echo "$seen"
