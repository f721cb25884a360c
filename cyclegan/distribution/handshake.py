"""Handshakes between workers, and the secret that proves who sent them; no TensorFlow."""

from __future__ import annotations

import hmac
import pathlib
import secrets
import zlib

from cyclegan.distribution.cluster import Cluster
from cyclegan.errors import UserError

CHALLENGE_BYTES = 33  # with the end of the line
MESSAGE_BYTES = 300  # at most
SECRET_BYTES = 16  # at least


def read_secret(path: str | None) -> bytes:
    """Return the secret in a file, without white space at its ends; empty without a path.

    Raises:
        UserError: The file cannot be read, or its secret is short.
    """
    if path is None:
        return b""
    try:
        secret = pathlib.Path(path).read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"--rendezvous_secret_file {path}: {error.strerror}; expected a file that can be read"
        ) from error
    if len(secret) < SECRET_BYTES:
        raise UserError(
            f"--rendezvous_secret_file {path}: {len(secret)} bytes; expected at least {SECRET_BYTES} random ones, for example of"
            " openssl rand -hex 32"
        )
    return secret


def make_challenge() -> bytes:
    """Return a random challenge, which the next handshake has to answer."""
    return secrets.token_hex(CHALLENGE_BYTES // 2).encode()


def message(cluster: Cluster, worker: int, other: int) -> bytes:
    """Return the handshake of a worker for another; its checksum ensures that both have the same list of addresses."""
    checksum = zlib.crc32(repr(cluster.addresses).encode())
    return f"CycleGAN worker {worker} to {other} of {checksum:08x}, ".encode()


def sign(secret: bytes, message: bytes, challenge: bytes) -> bytes:
    """Return the code that proves that the sender of a handshake knows the secret and has seen the challenge."""
    return hmac.new(secret, challenge + b" " + message, "sha256").hexdigest().encode()
