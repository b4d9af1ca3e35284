"""The rules of ``spec.checkpoint``: where checkpoints may be kept."""

from __future__ import annotations

import re

from trimtab_api.trainingjob.rule import Rule

#: A URL with a password before its host, or with a query, which may be a signature or a token.
_UNSAFE_URL = "://([^@]*:[^@]*@|.*[?])"
#: Valid names of volume claims.
_CLAIM = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"
_NAME_A_CLAIM = "name a PersistentVolumeClaim of the job's namespace, such as checkpoints"
#: Sizes as Kubernetes writes them.
_QUANTITY = "^[0-9]+([.][0-9]+)?([KMGTP]i|[kMGTP])?$"
_WRITE_A_QUANTITY = "write a size as Kubernetes does, such as 10Gi"

CHECKPOINT_RULES = (
    Rule(
        "spec.checkpoint",
        "has(self.path) || has(self.volumeClaim) || has(self.inMemory)",
        "is missing; name the place of checkpoints by path or by volumeClaim, or write inMemory: neighbour",
        ".path",
        lambda self: self.path is self.volume_claim is self.in_memory is None,
    ),
    Rule(
        "spec.checkpoint",
        "!has(self.path) || !has(self.volumeClaim)",
        "is a second place beside volumeClaim; remove one of the two",
        ".path",
        lambda self: self.path is not None and self.volume_claim is not None,
    ),
    Rule(
        "spec.checkpoint.path",
        f"!self.matches('{_UNSAFE_URL}')",
        "may hold a password or a token, which would be printed; write the URL without it, and set what the library"
        " reads in the trainer's environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3, FSSPEC_SFTP_PASSWORD"
        " for sftp",
        wrong=lambda path: bool(re.search(_UNSAFE_URL, path)),
        hides_value=True,
    ),
    Rule(
        "spec.checkpoint.volumeClaim",
        "has(self.existing) != has(self.size)",
        "write either existing, the name of a claim, or size, for a claim that is made",
        ".existing",
        lambda self: (self.existing is None) == (self.size is None),
    ),
    Rule(
        "spec.checkpoint.volumeClaim",
        "!has(self.existing) || !(has(self.storageClassName) || has(self.accessModes))",
        "is a claim that has its storage class and access modes; remove storageClassName and accessModes",
        ".existing",
        lambda self: self.existing is not None and not (self.storage_class_name is self.access_modes is None),
    ),
    Rule(
        "spec.checkpoint.volumeClaim.existing",
        f"self.matches('{_CLAIM}')",
        _NAME_A_CLAIM,
        wrong=lambda name: not re.search(_CLAIM, name),
    ),
    Rule(
        "spec.checkpoint.volumeClaim.size",
        f"self.matches(r'{_QUANTITY}') && self.matches('[1-9]')",
        _WRITE_A_QUANTITY,
        wrong=lambda size: not (re.search(_QUANTITY, size) and re.search("[1-9]", size)),
    ),
)
