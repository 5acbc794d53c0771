# What daemons were started with, and what lies there now, as one JSON object. Changes nothing.
#   bash -euc "$(cat daemons.sh)" daemons UNIT… -- FILE…
files='' units='' part=units
for word in "$@"; do
    case $part:$word in
    units:--) part=files ;;
    units:*)
        with='' facts=''
        if [ -r "/run/$word.started-with" ]; then
            while read -r sum path; do with+="${with:+, }\"$path\": \"$sum\""; done <"/run/$word.started-with"
        fi
        while IFS='=' read -r key value; do facts+="\"$key\": \"$value\", "; done < <(
            systemctl show "$word" --property=ActiveState --property=NeedDaemonReload
        )
        units+="${units:+, }\"$word\": {$facts\"started_with\": {$with}}"
        ;;
    files:*)
        if [ -f "$word" ]; then
            sum=$(sha256sum <"$word")
            files+="${files:+, }\"$word\": \"${sum%% *}\""
        fi
        ;;
    esac
done
printf '{"files": {%s}, "units": {%s}}\n' "$files" "$units"
