#!/usr/bin/env bash
# pettingzoo 1.27.0: after an illegal move in tic-tac-toe or connect four, the mover loses but the other does not win.
#
# Expected: these games are zero-sum. The warning says "game terminating with current player losing", so the rewards
# should be those of a loss: -1 and +1 (TextArena's tic-tac-toe pays so after two invalid moves).
# Happens: env() wraps the game in TerminateIllegalWrapper, which pays -1 and 0.
# Matters: language models often make illegal moves. Self-play returns then have a negative sum, so win rates, Elo
# ratings and a value of the opponent computed as -value are wrong: "won" games look like draws.
# Fix: mask or repair moves before step, or count -1 and 0 as a loss and a win.
# Seen (besides the warnings):
#   tic-tac-toe, three in a row: {'player_1': 1, 'player_2': -1}
#   tic-tac-toe, illegal move:   {'player_1': 0, 'player_2': -1.0}
#   connect four, illegal move:  {'player_0': -1.0, 'player_1': 0}
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pettingzoo==1.27.0 gymnasium==1.4.0 pygame-ce==2.5.8
PYGAME_HIDE_SUPPORT_PROMPT=1 "$folder/venv/bin/python" -W ignore - <<'EOF'
from pettingzoo.classic import connect_four_v3, tictactoe_v3


def play(game, moves):
    env = game.env()
    env.reset(seed=0)
    for move in moves:
        env.step(move)
    return dict(env.rewards)


won = play(tictactoe_v3, [0, 3, 1, 4, 2])
illegal = play(tictactoe_v3, [0, 0])
full_column = play(connect_four_v3, [3] * 7)
print("tic-tac-toe, three in a row:", won)
print("tic-tac-toe, illegal move:  ", illegal)
print("connect four, illegal move: ", full_column)
if sorted(won.values()) != [-1, 1] or not sorted(illegal.values()) == sorted(full_column.values()) == [-1, 0]:
    raise SystemExit("changed: an illegal move pays both players otherwise")
EOF
