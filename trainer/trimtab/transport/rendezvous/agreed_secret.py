"""Agreement on a secret between ranks that share none, over messages that others may read.

X25519 (RFC 7748): each rank draws a key pair and tells its public key. Rank 0 draws the secret and seals it for each
rank by the key that only these two can work out. A mere reader learns nothing. An attacker who can change what is read
can take rank 0's place: against that, ranks need certificates.
"""

from __future__ import annotations

import hashlib
import os

import torch
import torch.distributed as dist
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from trimtab.transport.base import CommunicationError, malformed

_NUM_BYTES = 32
#: A secret that is sealed: with its tag.
_NUM_SEALED_BYTES = _NUM_BYTES + 16
#: Each key seals one message.
_NONCE = bytes(12)


class KeyPair:
    """A rank's key pair, drawn for one rendezvous."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def seal(self, secret: bytes, public: bytes, rank: int) -> bytes:
        """Seal rank 0's ``secret`` for the ``rank`` with this ``public`` key alone; may raise `CommunicationError`."""
        return self._cipher(public, self.public + public, rank).encrypt(_NONCE, secret, None)

    def unseal(self, sealed: bytes, public: bytes) -> bytes:
        """Open what the rank 0 with this ``public`` key sealed; raise `CommunicationError` if it was changed."""
        try:
            return self._cipher(public, public + self.public, 0).decrypt(_NONCE, sealed, None)
        except InvalidTag:
            raise CommunicationError(0, "sent a secret that is not for this rank: somebody changed it") from None

    def _cipher(self, public: bytes, both: bytes, sender: int) -> ChaCha20Poly1305:
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # of another length, or a point by which everybody knows what comes of it
            raise malformed(sender, "no public key") from None
        return ChaCha20Poly1305(hashlib.sha256(b"trimtab: the secret of a meeting" + shared + both).digest())


def draw_secret() -> bytes:
    """Draw a new secret, on rank 0."""
    return os.urandom(_NUM_BYTES)


def agree_in_process_group(process_group: dist.ProcessGroup | None, device: torch.device) -> bytes:
    """Return a secret that every rank of the process group knows afterwards; all call it together.

    Messages lie on ``device``.

    Raises:
        CommunicationError: A rank sent no key, or a message was changed.
    """
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    pair = KeyPair()
    mine = _tensor(pair.public).to(device)
    everyone = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(everyone, mine, group=process_group)
    publics = [_bytes(message) for message in everyone]
    sealed = torch.zeros(size * _NUM_SEALED_BYTES, dtype=torch.uint8)
    secret = draw_secret()
    if rank == 0:
        sealed = _tensor(b"".join(pair.seal(secret, public, peer) for peer, public in enumerate(publics)))
    sealed = sealed.to(device)
    first = 0 if process_group is None else dist.get_global_rank(process_group, 0)
    dist.broadcast(sealed, first, group=process_group)
    if rank == 0:
        return secret
    begin = rank * _NUM_SEALED_BYTES
    return pair.unseal(_bytes(sealed)[begin : begin + _NUM_SEALED_BYTES], publics[0])


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
