# What this host is, as one JSON object. Changes nothing.
#   bash -euc "$(cat look.sh)" look PACKAGE[=VERSION]… -- FILE… -- UNIT…
missing='' files='' units='' part=packages
LC_ALL=C
export LC_ALL
for word in "$@"; do
    case $part:$word in
    packages:--) part=files ;;
    files:--) part=units ;;
    packages:*)
        name=${word%%=*}
        said=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$name" 2>/dev/null) || said=''
        # A version may be a pattern, as for apt.
        [[ $word == *=* ]] && wanted="installed ${word#*=}" || wanted='installed *'
        # shellcheck disable=SC2053
        [[ $said == $wanted ]] || missing+="${missing:+, }[\"$word\", \"${said#installed }\"]"
        ;;
    files:*)
        if [ -f "$word" ]; then
            sum=$(sha256sum <"$word")
            files+="${files:+, }\"$word\": [\"${sum%% *}\", \"$(stat -c '%a", "%U:%G' "$word")\"]"
        elif [ -d "$word" ]; then
            files+="${files:+, }\"$word\": [\"folder\", \"$(stat -c '%a", "%U:%G' "$word")\"]"
        fi
        ;;
    units:*)
        with=''
        if [ -r "/run/$word.started-with" ]; then
            while read -r sum path; do with+="${with:+, }\"$path\": \"$sum\""; done <"/run/$word.started-with"
        fi
        active=$(systemctl is-active "$word" 2>/dev/null) || true
        enabled=$(systemctl is-enabled "$word" 2>/dev/null) || true
        units+="${units:+, }\"$word\": {\"active\": \"$active\", \"enabled\": \"$enabled\", \"started_with\": {$with}}"
        ;;
    esac
done
# Slurm's own commands would want a slurm.conf to say their version.
release=$({ dpkg-query -W -f='${Version}' slurm-client 2>/dev/null || true; } | sed -nE 's/^([0-9]+:)?([0-9]+\.[0-9]+).*/\2/p')
hardware=$(slurmd -C 2>/dev/null | head -n 1) || hardware=''
word_of() { sed -nE "s/.*\b$1=([0-9]+).*/\1/p" <<<"$hardware"; }
cpus=$(word_of CPUs) memory=$(word_of RealMemory)
uid=$(id -u slurm 2>/dev/null) || uid=''
# Where the controller kept its state until now, if it has any there.
state=$(sed -nE 's/^StateSaveLocation=([^ "\\]+).*/\1/p' /etc/slurm/slurm.conf 2>/dev/null | tail -n 1) || state=''
[ -f "$state/job_state" ] || state=''
printf '{"missing": [%s], "files": {%s}, "units": {%s}, "release": "%s", "uid": "%s", "host": "%s", "codename": "%s", "state": "%s", "cpus": %s, "memory_mib": %s}\n' \
    "$missing" "$files" "$units" "$release" "$uid" "$(hostname -s)" "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" "$state" \
    "${cpus:-0}" "${memory:-0}"
