# shellcheck shell=bash
# Servers in the background: start, wait until one answers, stop, list. Sourced by scripts/serve; the caller has
# set -euo pipefail.
#
# A server is a folder $servers/NAME:
#   command   what was started, words ended by a zero byte
#   endpoint  what evalrun calls it: NAME=http://127.0.0.1:PORT,api=...
#   log       its standard output and error, of the last start
#   pid       process id, its start time, the boot; gone when it was stopped here
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
servers=$evalrun_home/servers/run

# start_of PID: when the process began, in ticks since the boot. Fails where there is none, or only its exit status.
start_of() {
  local stat fields
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"  # the name before ")" may hold anything
  [[ ${fields[0]:-X} != [ZX] ]] && printf '%s\n' "${fields[19]}"
}

# pid_of NAME: the process, if it is still the one that was started. Another one may have got its number.
pid_of() {
  local pid began boot
  read -r pid began boot 2>/dev/null <"$servers/$1/pid" || return 1
  [[ $boot == "$(</proc/sys/kernel/random/boot_id)" && $(start_of "$pid") == "$began" ]] && printf '%s\n' "$pid"
}

# url_of NAME
url_of() {
  local endpoint
  endpoint=$(<"$servers/$1/endpoint")
  endpoint=${endpoint#*=}
  printf '%s\n' "${endpoint%%,*}"
}

names_of_servers() {
  local file
  for file in "$servers"/*/command; do
    if [[ -f $file ]]; then basename "$(dirname "$file")"; fi
  done
}

need_server() {
  local known
  [[ -f $servers/$1/command ]] && return
  known=$(names_of_servers | paste -sd ' ')
  die 2 "there is no server '$1'" "known: ${known:-none}; scripts/serve list shows them"
}

# is_taken PORT: somebody listens there, or one of our servers is about to.
is_taken() {
  local name
  if timeout 2 bash -c ": <>/dev/tcp/127.0.0.1/$1" 2>/dev/null; then return; fi
  for name in $(names_of_servers); do
    if [[ $(url_of "$name") == "http://127.0.0.1:$1" ]] && pid_of "$name" >/dev/null; then return; fi
  done
  return 1
}

# free_port: the first of a hundred that nobody has.
free_port() {
  local port
  for ((port = 8101; port < 8201; ++port)); do
    if ! is_taken "$port"; then
      printf '%s\n' "$port"
      return
    fi
  done
  die 6 "the ports 8101 to 8200 are all taken" "scripts/serve stop all - or name another with --port"
}

answers() { curl --silent --fail --noproxy '*' --max-time 2 --output /dev/null "$1/health"; }

show_log() {
  printf 'the end of %s:\n' "$servers/$1/log" >&2
  tail -n 20 "$servers/$1/log" | sed 's/^/  | /' >&2
}

# end_server NAME GRACE: asks it to end, and after GRACE seconds ends it with all processes that it has started.
end_server() {
  local name=$1 pid deadline=$((SECONDS + $2))
  if pid=$(pid_of "$name"); then
    kill -TERM "$pid" 2>/dev/null || true
    while pid_of "$name" >/dev/null && ((SECONDS < deadline)); do sleep 0.05; done
    # Its group has the number of the process: setsid made it. Workers may outlive the server itself.
    kill -KILL -- "-$pid" 2>/dev/null || true
    while pid_of "$name" >/dev/null; do sleep 0.05; done
  fi
  rm -f "$servers/$name/pid"
}

# launch NAME WAIT: starts what the folder says, and returns when it answers. Prints its URL and endpoint. Ends the
# script with 6 where it does not answer within WAIT seconds. Sets traps: call it last.
launch() {
  local name=$1 folder=$servers/$1 deadline=$((SECONDS + $2)) start=$SECONDS url pid command
  url=$(url_of "$name")
  mapfile -d '' -t command <"$folder/command"
  command -v curl >/dev/null || die 6 "curl is needed to see whether $name answers" "apt-get install curl"
  say "$name: starting, log in $folder/log" >&2
  # shellcheck disable=SC2064  # the name of now is meant
  trap "end_server '$name' 5; exit 130" INT TERM
  # A session of its own: Ctrl-C here is none there, and its group can be ended as a whole.
  setsid "${command[@]}" >"$folder/log" 2>&1 </dev/null 9>&- &
  pid=$!
  printf '%s %s %s\n' "$pid" "$(start_of "$pid")" "$(</proc/sys/kernel/random/boot_id)" >"$folder/pid"
  exec 9>&-  # the name and the port are taken now
  until answers "$url"; do
    if ! pid_of "$name" >/dev/null; then
      rm -f "$folder/pid"
      show_log "$name"
      die 6 "$name ended before it answered" "the log above says why; the command: ${command[*]}"
    fi
    if ((SECONDS >= deadline)); then
      end_server "$name" 5
      show_log "$name"
      die 6 "$name did not answer at $url/health within $2 seconds and was stopped" "--wait gives it longer"
    fi
    sleep 0.05
  done
  # What answered may be somebody else who was quicker to take the port.
  if ! pid_of "$name" >/dev/null; then
    rm -f "$folder/pid"
    show_log "$name"
    die 6 "$name ended, and another program answers at $url" "name another port with --port"
  fi
  say "$name: answers after $(elapsed "$start")" >&2
  printf '%s\n--endpoint %s\n' "$url" "$(<"$folder/endpoint")"
}

# hold_servers: until launch() has written who runs where, no other call may take a name or a port.
hold_servers() {
  mkdir -p "$servers" 2>/dev/null || die 7 "cannot create $servers" "set EVALRUN_HOME to a folder you may write to"
  exec 9>"$servers/.lock"
  flock 9
}

# serve NAME PORT ENDPOINT WAIT COMMAND...: PORT "" takes a free one; @PORT@ in COMMAND becomes the port. ENDPOINT is
# what follows the URL.
serve() {
  local name=$1 port=$2 endpoint=$3 wait=$4 folder=$servers/$1
  shift 4
  hold_servers
  if pid_of "$name" >/dev/null; then
    die 6 "the server '$name' runs already at $(url_of "$name")" \
      "scripts/serve stop $name, or give this one another --name"
  fi
  if [[ -z $port ]]; then port=$(free_port); fi
  if is_taken "$port"; then
    die 6 "the port $port is in use" "name another with --port, or none: then a free one is taken"
  fi
  mkdir -p "$folder"
  printf '%s=http://127.0.0.1:%s,%s\n' "$name" "$port" "$endpoint" >"$folder/endpoint"
  printf '%s\0' "${@//@PORT@/$port}" >"$folder/command"
  launch "$name" "$wait"
}

# stop_servers GRACE NAME...
stop_servers() {
  local grace=$1 name
  shift
  for name in "$@"; do
    need_server "$name"
    if pid_of "$name" >/dev/null; then
      end_server "$name" "$grace"
      say "$name: stopped" >&2
    else
      rm -f "$servers/$name/pid"
      say "$name: does not run" >&2
    fi
  done
}

restart_server() {
  local name=$1 grace=$2 wait=$3
  need_server "$name"
  hold_servers
  end_server "$name" "$grace"
  if is_taken "$(url_of "$name" | sed 's/.*://')"; then
    die 6 "the port of '$name', $(url_of "$name"), is in use by another program" "end that one, or start '$name' anew"
  fi
  launch "$name" "$wait"
}

list_servers() {
  local name pid state
  for name in $(names_of_servers); do
    state=stopped
    if pid=$(pid_of "$name"); then
      state="loading, process $pid"
      if answers "$(url_of "$name")"; then state="runs, process $pid"; fi
    elif [[ -f $servers/$name/pid ]]; then
      state=died
    fi
    printf '%-20s %-24s --endpoint %s\n' "$name" "$state" "$(<"$servers/$name/endpoint")"
  done
}
