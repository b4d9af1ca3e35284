"""What every test here needs, as marks: ``pytestmark = ON_PODS``, or `WITH_TRIMTAB` where the chart is installed."""

import pytest

ON_PODS = [pytest.mark.node, pytest.mark.helm, pytest.mark.slow, pytest.mark.timeout(2400)]
WITH_TRIMTAB = [*ON_PODS, pytest.mark.usefixtures("release")]
