"""What a reconciler asks of training, where rank 0 says nothing."""

from trimtab_operator.decisions.policies.progress import Progress


class SilentTraining:
    """No status ever comes."""

    def latest(self, uid):
        return None

    def progress(self, uid):
        return Progress()

    def unreachable_reason(self, uid):
        return ""

    def follow(self, world):
        pass

    def forget(self, namespace, name):
        pass
