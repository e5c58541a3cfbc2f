"""Transactions: of the class tx on one channel, and of the dtx classes across connections and restarts.

Begin with transaction.py for tx. For dtx, dtx_branch.py has the states of a branch and dtx_branches.py who
works in them; dtx_completion.py commits and rolls back, dtx_journal.py writes.
"""
