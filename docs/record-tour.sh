#!/bin/sh
# Records `crossdock tour` in a terminal of 80 columns, as docs/tour.cast (asciinema v2). Play it with `asciinema play`.
#
# usage: docs/record-tour.sh [PROGRAM]
#   PROGRAM   the program to record, instead of a release build of this repository
#
# Needs python3, for the terminal. The pauses for reading are added to the recording's clock, so recording takes a few seconds.
set -eu
cd "$(dirname "$0")/.."
program=${1:-}
if [ -z "$program" ]; then
    cargo build --release
    program=target/release/crossdock
fi
exec python3 - "$program" docs/tour.cast <<'PYTHON'
import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time

COLUMNS, ROWS = 80, 24
PROMPT = "end]"  # the end of what the tour waits for Enter with
READING_S = 10.0  # the pause for reading one step
TYPING_S = 0.06  # the pause for typing one character

program, cast = os.path.abspath(sys.argv[1]), sys.argv[2]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ.update(TERM="xterm-256color", LANG="C.UTF-8")
    os.execv(program, ["crossdock", "tour"])

events, added_s, started = [], 0.0, time.monotonic()
unread, shown = b"", ""


def note(text):
    events.append([round(time.monotonic() - started + added_s, 3), "o", text])


for character in "$ crossdock tour":
    note(character)
    added_s += TYPING_S
note("\r\n")
while True:
    try:
        read = os.read(terminal, 65536)
    except OSError:  # the other side is closed
        break
    if not read:
        break
    unread += read
    # A character that has not come whole waits for its rest.
    text = unread.decode("utf-8", "ignore")
    unread = unread[len(text.encode()):]
    note(text)
    shown += text
    if PROMPT in shown:
        shown = ""
        added_s += READING_S
        os.write(terminal, b"\n")
_, status = os.waitpid(child, 0)
if status != 0:
    sys.exit(f"the tour ended with {os.waitstatus_to_exitcode(status)}")
added_s += READING_S
note("")
with open(cast, "w", encoding="utf-8") as file:
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "crossdock tour"}
    for line in [header, *events]:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
print(f"{cast}: {len(events)} events, {events[-1][0]:.0f} s")
PYTHON
