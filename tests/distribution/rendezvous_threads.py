"""Rendezvous of workers in threads."""

import socket
import threading

from cyclegan.distribution import rendezvous
from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError


def addresses(count):
    held = [socket.create_server(("", 0)) for _ in range(count)]
    found = tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in held)
    for each in held:
        each.close()
    return found


def meet(found, seconds=20.0, delays=None, lists=None, configurations=None, secrets=None):
    """Call `meet` in a thread per worker; return the error of each worker, or `None`."""
    outcomes = [None] * len(found)

    def one(index):
        threading.Event().wait((delays or {}).get(index, 0))
        try:
            cluster = Cluster((lists or {}).get(index, found), index)
            secret = (secrets or {}).get(index, b"")
            rendezvous.meet(cluster, seconds, (configurations or {}).get(index, "4 GPUs"), secret)
        except UserError as error:
            outcomes[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
