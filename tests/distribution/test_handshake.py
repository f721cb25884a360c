import pytest

from cyclegan.distribution import handshake
from cyclegan.errors import UserError


def test_secret_is_read_from_a_file(tmp_path):
    path = tmp_path / "secret"
    with pytest.raises(
        UserError, match=f"--rendezvous_secret_file {path}: No such file.*; expected a file that can be"
    ):
        handshake.read_secret(str(path))
    path.write_bytes(b"short\n")
    with pytest.raises(UserError, match=f"--rendezvous_secret_file {path}: 5 bytes; expected at least 16 random ones"):
        handshake.read_secret(str(path))
    path.write_bytes(b"0123456789abcdef\n")
    assert handshake.read_secret(str(path)) == b"0123456789abcdef" and handshake.read_secret(None) == b""
