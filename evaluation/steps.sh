# Sourced by scripts that run an evaluation in steps, each a case of their function run_step.
#
# A step writes OUT/STEP.json or OUT/STEP.log and is passed over where OUT/STEP.done says that it ended well, so a run that
# was cut goes on.

# The script's arguments, OUT [STEP...]: sets out and steps, makes OUT and goes to the project's root; without any it says what
# the script's first comment says.
take_steps() {
  [[ $# -ge 1 ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  out=$1
  shift
  steps=("$@")
  cd "$(dirname "$0")/.." && mkdir -p "$out" || exit
}

# OUT STEP...: runs them, says how long each took and shows the lines of its log that begin as $shown_lines says
# (a pattern of grep -E). Returns 1 if one failed, once all have been tried.
run_steps() {
  local out=$1 step began failed=0
  shift
  for step in "$@"; do
    [[ -e "$out/$step.done" ]] && continue
    began=$SECONDS
    if run_step "$step" >"$out/$step.log" 2>&1; then
      touch "$out/$step.done"
      echo "$step: $((SECONDS - began)) s"
    else
      failed=1
      echo "$step: failed after $((SECONDS - began)) s:"
      tail -n 3 "$out/$step.log"
    fi
    grep -E "^($shown_lines)" "$out/$step.log"
  done
  return "$failed"
}
