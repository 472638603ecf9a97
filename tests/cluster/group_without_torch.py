"""Stands in for a training script where what torchrun does is tested: a group without torch, so it starts at once.

All processes wait for each other in every step, and each fails when another is gone, as in a collective of torch. The
step and the size of the group are kept on the shared volume; the file `enough` there ends it.
"""

import os
import socket
import sys
import time
from pathlib import Path

FOLDER = Path("/checkpoints")
GO_ON, END = b".", b"x"


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        lead(size)
    else:
        follow()


def lead(size):
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    peers = [server.accept()[0] for _ in range(size - 1)]
    saved = FOLDER / "step"
    step = int(saved.read_text().split()[0]) + 1 if saved.exists() else 0
    say(f"group of {size} begins at step {step}")
    while not (FOLDER / "enough").exists():
        meet(peers, GO_ON)
        save(saved, f"{step} {size}")
        step += 1
        time.sleep(0.1)
    meet(peers, END)
    say(f"ends at step {step}")


def save(file, text):
    """All of it or nothing: the process may be told to go at any moment."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def meet(peers, word):
    for peer in peers:
        peer.sendall(word)
    for peer in peers:
        if peer.recv(1) != word:
            sys.exit("a peer is gone")


def follow():
    leader = connect(deadline=time.monotonic() + 60)
    while (word := leader.recv(1)) in (GO_ON, END):
        leader.sendall(word)
        if word == END:
            return
    sys.exit("the leader is gone")


def connect(deadline):
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
