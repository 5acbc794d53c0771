# Which of the hosts' files are here with their word in them, a line each. Changes nothing.
#   bash -uc "$(cat seen.sh)" seen FILE HOST-WORD…
file=$1
shift
for each in "$@"; do
    word=''
    IFS= read -r word 2>/dev/null <"$file-$each" # no end of line in it: read says 1, and has it
    [ "$word" = "${each##*-}" ] && echo "${each%-*}"
done
true
