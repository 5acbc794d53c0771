"""A few lines of shell between Slurm and the launcher: an interpreter that is not there can't say so itself.

    start.sh PYTHON FOLDER job …              the batch script's part
    start.sh PYTHON FOLDER task NAME RANKS    one for each task of srun; RANKS: how many it stands for

Where PYTHON starts, the launcher takes the place of the shell, so that signals reach it. Where it
does not, the job's output names host and reason, and a task leaves the file that its launcher would
have left, for each of its ranks: how they ended is then told like any other ending.
"""

from __future__ import annotations

START = r"""#!/bin/sh
# Written by surefoot: starts launch.py with the cluster's Python, or says why it cannot.
surefoot_python=$1 surefoot_folder=$2 surefoot_part=$3
shift 3
surefoot_said=$("$surefoot_python" -V 2>&1)
surefoot_code=$?
if [ "$surefoot_code" -eq 0 ]; then
  [ "$surefoot_part" = job ] || set --
  exec "$surefoot_python" "$surefoot_folder/launch.py" "$surefoot_part" "$surefoot_folder" "$@"
fi

host=$(uname -n)
case $surefoot_code in
  126) why="cannot be run there (exit code 126: for another machine, or no permission): ${surefoot_said##*: }" ;;
  127) why="is not there (exit code 127)" ;;
  *) why="-V ends with $surefoot_code: $surefoot_said" ;;
esac
say() {
  printf 'surefoot: host %s: %s %s\n' "$host" "$surefoot_python" "$why"
  printf '→ install that interpreter there, or name one that every node has as python: in the cluster file\n'
}

if [ "$surefoot_part" = job ]; then
  say
  exit "$surefoot_code"
fi

id=$SLURM_JOB_ID where=$surefoot_folder
if [ -n "$SLURM_ARRAY_TASK_ID" ]; then
  id=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID where=$surefoot_folder/array-$SLURM_ARRAY_TASK_ID
fi
say >> "$where/$1-$id-$host.out"
now=$(date +%s)
life=${SLURM_RESTART_COUNT:-0}
rank=$((SLURM_PROCID * $2))
end=$((rank + $2))
while [ "$rank" -lt "$end" ]; do
  printf '{"rank": %d, "host": "%s", "node": "%s", "started_at": %d, "ended_at": %d, "timed_out": false, "exit_code": %d, "signal": null}\n' \
    "$rank" "$host" "$SLURMD_NODENAME" "$now" "$now" "$surefoot_code" > "$where/.exit-$life-$rank.$host"
  mv "$where/.exit-$life-$rank.$host" "$where/exit-$life-$rank.json"
  rank=$((rank + 1))
done
# srun ends the others as soon as this one is gone: they get a moment to say what they saw.
for _ in 1 2 3 4 5; do
  set -- "$where/exit-$life-"*.json
  [ $# -lt "$SLURM_NTASKS" ] || break
  sleep 1
done
exit "$surefoot_code"
"""
