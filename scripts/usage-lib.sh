# Sourced by the other scripts before they change the folder. With --help or -h it prints the comment at the head of the
# script and ends; $USAGE is this comment. `at PATH` makes a path absolute, relative to the caller's folder.
# shellcheck shell=bash
USAGE="$(awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0")"
for word in "$@"; do
    case "$word" in --help | -h) echo "$USAGE"; exit 0 ;; esac
done
CALLER="$PWD"
at() { (cd "$CALLER" && realpath -m -- "$1"); }
