"""Every parser of what somebody else wrote, by name."""

from __future__ import annotations

import checkpoint_targets
import message_targets
import text_targets

TARGETS = {
    target.name: target for target in (*text_targets.TARGETS, *checkpoint_targets.TARGETS, *message_targets.TARGETS)
}
