# shellcheck shell=bash
# Steps of a pipeline, for scripts that source this file. Every step is run, even after one that
# failed, so that one run shows all that is wrong. Afterwards the folder of artifacts holds a report
# for each that was judged, junit_*.xml, metadata.json, which Prow adds to finished.json, and steps.md, which says how long
# each step took.
#
# STEPS, a regular expression, runs those steps alone whose names fit it, and those that verify their reports.
#
# The program is _output/authzconf, which is built first, or the one that AUTHZCONF names.
set -euo pipefail

names=() # of the steps
codes=() # their exit codes
times=() # how many seconds they took
loads=() # the machine's load while they ended, where it says that
child=
interrupted=
signals=0

authzconf() { exec "$AUTHZCONF" "$@"; } # step runs it in a process of its own

# make's own exit code is 2 whatever failed; here a target that fails has failed. A signal is for all that make has started,
# which make does not see to: they are a process group, and the step ends when all of them have.
target() {
  local code=0 group ended=
  set -m
  "${MAKE:-make}" "$@" &
  group=$!
  set +m
  trap 'ended=yes; kill -TERM -- "-$group" 2>/dev/null || true' INT TERM
  while :; do # a signal ends wait, not make
    code=0
    wait "$group" || code=$?
    kill -0 "$group" 2>/dev/null || break
  done
  while [[ -n $ended ]] && kill -0 -- "-$group" 2>/dev/null; do sleep 0.2; done
  [[ -z $ended ]] || exit 3
  ((code == 0)) || exit 1
}

# begin [ARTIFACTS]: without a folder, Prow's variable of that name counts.
begin() {
  artifacts=${1:-${ARTIFACTS:-}}
  if [[ -z $artifacts ]]; then
    echo "usage: $0 FOLDER (or set ARTIFACTS)" >&2
    exit 2
  fi
  mkdir -p "$artifacts" || exit 2
  artifacts=$(cd "$artifacts" && pwd)
  if [[ -n $(ls -A "$artifacts") ]]; then
    echo "$artifacts is not empty: what is in there could be taken for results of this run" >&2
    exit 2
  fi
  cd "$(dirname "${BASH_SOURCE[0]}")/../.."
  if [[ -z ${AUTHZCONF:-} ]]; then
    for program in go git make; do
      if ! command -v "$program" >/dev/null; then
        echo "$0: there is no program $program: a pipeline needs Go, git and make, or the program authzconf that AUTHZCONF names" >&2
        exit 2
      fi
    done
    make build >&2 || exit 2
    AUTHZCONF=_output/authzconf
  fi
  trap interrupt INT TERM
}

# A signal for the pipeline alone, such as Prow sends at a timeout, is one for the step as well: it
# removes its control planes and writes what it has. No further step is begun.
interrupt() {
  interrupted=yes
  signals=$((signals + 1))
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null || true
}

# is_wanted NAME: whether a step is to be run.
is_wanted() { [[ -z $interrupted && $1 =~ ${STEPS:-.} ]]; }

# step NAME COMMAND...: run a command and keep its exit code.
step() { ! is_wanted "$1" || run_step "$@"; }

run_step() {
  local name=$1 code=0 before begin=$SECONDS
  shift
  [[ -z $interrupted ]] || return 0
  printf '\n== %s: %s (%d s so far)\n' "$name" "$*" "$SECONDS" >&2
  "$@" &
  child=$!
  while :; do # a signal ends wait, not the child; the child may have ended since then
    before=$signals code=0
    wait "$child" || code=$?
    ((signals > before)) || break
  done
  child=
  names+=("$name")
  codes+=("$code")
  times+=($((SECONDS - begin)))
  loads+=("$(cut -d' ' -f1 /proc/loadavg 2>/dev/null || true)")
  printf '== %s: exit code %d after %d s\n' "$name" "$code" "$((SECONDS - begin))" >&2
}

# has_failed NAME: whether a step was run and did not end with 0.
has_failed() {
  local i
  for i in "${!names[@]}"; do
    [[ ${names[i]} != "$1" ]] || return "$((codes[i] == 0))"
  done
  return 1
}

# judge NAME COMMAND...: a step that leaves a report, in the folder NAME; the report is verified. One
# that says passed without a report has shown nothing.
judge() {
  local name=$1
  shift
  is_wanted "$name" || return 0
  run_step "$name" "$@" --report-dir "$artifacts/$name"
  keep_report "$name"
}

# judge_target NAME TARGET [VARIABLE=VALUE...]: the same of a target of make that writes its report to KIND_REPORT.
judge_target() {
  local name=$1
  shift
  is_wanted "$name" || return 0
  run_step "$name" target "$@" KIND_REPORT="$artifacts/$name"
  keep_report "$name"
}

# keep_report NAME: verify the report that the last step has left in the folder NAME.
keep_report() {
  local name=$1 report=$artifacts/$1
  if [[ -f $report/junit.xml ]]; then
    cp "$report/junit.xml" "$artifacts/junit_$name.xml"
    run_step "$name-verify" authzconf verify "$report"
  elif ((codes[-1] == 0)); then
    echo "$name ended with 0 and left no report" >&2
    codes[-1]=3
  fi
}

# write_times prints a table of the steps.
write_times() {
  local i
  printf '| step | exit code | seconds | load of the machine |\n|---|--:|--:|--:|\n'
  for i in "${!codes[@]}"; do
    printf '| %s | %d | %d | %s |\n' "${names[i]}" "${codes[i]}" "${times[i]}" "${loads[i]}"
  done
  printf '| in all | | %d | |\n' "$SECONDS"
}

# finish ends the pipeline with authzconf's exit codes: 1 if any step failed; if none did, 3 if any
# could not say; then 2 if any was not understood; 0 only if every step ended with 0.
finish() {
  local i code=0 steps='' outcome
  for i in "${!codes[@]}"; do
    case ${codes[i]} in
      0) ;;
      1) code=1 ;;
      2) ((code != 0)) || code=2 ;;
      *) ((code == 1)) || code=3 ;; # 3, killed by a signal, not started
    esac
    steps+="${steps:+, }\"${names[i]}\": \"${codes[i]}\""
    printf '%4d %6d s  %s\n' "${codes[i]}" "${times[i]}" "${names[i]}" >&2
  done
  write_times >"$artifacts/steps.md"
  if [[ -n $interrupted ]] || ((${#codes[@]} == 0)); then
    ((code == 1)) || code=3
  fi
  case $code in
    0) outcome=passed ;;
    1) outcome=failed ;;
    2) outcome=usage ;;
    *) outcome=invalid ;;
  esac
  printf '{"outcome": "%s", "exit-code": "%d", "steps": {%s}}\n' "$outcome" "$code" "$steps" >"$artifacts/metadata.json"
  printf 'outcome: %s, exit code %d\n' "$outcome" "$code" >&2
  [[ -z ${STEPS:-} ]] || echo "only the steps were run whose names fit STEPS=$STEPS" >&2
  if ((code == 2 || code == 3)); then
    echo "this is not a pass: a step found nothing out about the API server" >&2
  fi
  exit "$code"
}
