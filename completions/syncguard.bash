# Completion of syncguard for bash.

_syncguard() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --url) ((i++)) ;;
      -*) ;;
      *)
        command=${COMP_WORDS[i]}
        break
        ;;
    esac
  done
  # The command that run starts is completed as if it stood alone.
  if [[ $command == run ]]; then
    for ((i++; i < COMP_CWORD; i++)); do
      if [[ ${COMP_WORDS[i]} == -- ]]; then
        if declare -F _command_offset >/dev/null; then
          _command_offset $((i + 1))
        elif ((COMP_CWORD == i + 1)); then
          mapfile -t COMPREPLY < <(compgen -c -- "$current")
        else
          mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
        return
      fi
    done
  fi
  case $command:$previous in
    serve:--token-file | serve:--cert | serve:--key)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
  esac
  case $previous in
    --url | --key | --ttl | --wait | --kill-after | --at-least | --timeout | --conflict-exit-code | --lost-exit-code | --id | --older-than | --fence | --raise | --listen | --host | --interval)
      return
      ;;
  esac
  local words='--url --json -q --quiet -v --verbose -h --help'
  case $command in
    '') words+=' --version run acquire release extend status is-locked list watch break fence serve setup cleanup doctor backends' ;;
    run)
      words+=' --key --ttl --wait --no-wait --conflict-exit-code --lost-exit-code'
      words+=' --kill-after --at-least --timeout --pass-url --'
      ;;
    acquire) words+=' --ttl --wait' ;;
    extend) words+=' --ttl' ;;
    status) words+=' --id --raw' ;;
    list) words+=' --watch' ;;
    break) words+=' --fence --yes' ;;
    fence) words+=' --raise' ;;
    serve) words+=' --listen --host --token-file --cert --key --insecure --allow-break --interval' ;;
    setup) words+=' --print' ;;
    cleanup) words+=' --older-than --dry-run' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _syncguard syncguard
