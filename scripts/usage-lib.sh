# The other scripts source this file before they change the folder. With --help or -h, the comment at the head of the script
# is printed and the script ends; $USAGE holds this comment. `make_absolute PATH`
# resolves a path from the caller's folder.
# shellcheck shell=bash
USAGE="$(awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0")"
for word in "$@"; do
    case "$word" in --help | -h) echo "$USAGE"; exit 0 ;; esac
done
CALLER="$PWD"
make_absolute() { (cd "$CALLER" && realpath -m -- "$1"); }
