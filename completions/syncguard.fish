# Completion of syncguard for fish.

set -l commands run acquire release extend status is-locked setup doctor backends

complete -c syncguard -f
complete -c syncguard -l url -x -d 'The backend'
complete -c syncguard -l json -d 'Print exactly one JSON object'
complete -c syncguard -s q -l quiet -d 'Print results and errors only'
complete -c syncguard -s v -l verbose -d 'Print what the library has to say, too'
complete -c syncguard -s h -l help -d 'Print help'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'

complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a run -d 'Run a command while holding a lock'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a acquire -d 'Acquire a lock and print its id'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a release -d 'Release a lock by its id'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a extend -d 'Let a lock live on'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a status -d 'Say what is known about a lock'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a is-locked -d 'Say whether a key is locked'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a setup -d 'Create what the backend needs'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a doctor -d 'Check the backend'
complete -c syncguard -n "not __fish_seen_subcommand_from $commands" -a backends -d 'Say which backends there are'

complete -c syncguard -n '__fish_seen_subcommand_from run' -l key -x -d 'What to lock'
complete -c syncguard -n '__fish_seen_subcommand_from run acquire extend' -l ttl -x -d 'How long the lock lives'
complete -c syncguard -n '__fish_seen_subcommand_from run acquire' -l wait -x -d 'How long to wait for the lock'
complete -c syncguard -n '__fish_seen_subcommand_from run' -l no-wait -d 'Do not wait for the lock'
complete -c syncguard -n '__fish_seen_subcommand_from run' -l conflict-exit-code -x -d 'If somebody else has the lock'
complete -c syncguard -n '__fish_seen_subcommand_from run' -l lost-exit-code -x -d 'If the lock was lost'
complete -c syncguard -n '__fish_seen_subcommand_from run' -l kill-after -x -d 'SIGTERM so long before SIGKILL'
complete -c syncguard -n '__fish_seen_subcommand_from run' -a '(__fish_complete_subcommand)'
complete -c syncguard -n '__fish_seen_subcommand_from status' -l id -x -d 'Which lock, by its id'
complete -c syncguard -n '__fish_seen_subcommand_from status' -l raw -d 'Show the key and the lock id, too'
