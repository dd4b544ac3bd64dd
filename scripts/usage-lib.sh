# Sourced by the other scripts before they change the folder. With --help or -h it prints the comment at the head of the
# script and ends; $USAGE is this comment. `at PATH` gives a path of the caller's as an absolute one.
# shellcheck shell=bash
USAGE="$(awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0")"
for word in "$@"; do
    case "$word" in --help | -h) echo "$USAGE"; exit 0 ;; esac
done
CALLER="$PWD"
at() { (cd "$CALLER" && realpath -m -- "$1"); }
