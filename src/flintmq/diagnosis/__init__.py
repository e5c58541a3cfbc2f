"""What is wrong with a running broker: checks of what it says, for `flintmq doctor` and for the HTTP API.

This package asks nobody. Whoever gathers the evidence, over AMQP or from snapshots, hands it to the checks.
"""

from __future__ import annotations

# The status of `flintmq doctor` when something was found.
TROUBLE = 6
