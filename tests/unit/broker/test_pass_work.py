"""The work of a pass: how much of what has come may be handed out in one."""

from __future__ import annotations

from typing import Any

from flintmq.broker.scheduling.pass_work import PassWork
from flintmq.broker.scheduling.timetable import Timetable
from flintmq.clock import Clock

ARRIVED = 200_000


def begun(pass_work: PassWork) -> int:
    """What the next pass may hand out of what has arrived."""
    pass_work.begin_pass()
    return pass_work.pass_left - pass_work.handed_out_max


def test_what_arrives_at_once_is_handed_out_in_several_passes() -> None:
    """One message may go to as many queues, each with a consumer: others would wait for all of them."""
    pass_work = PassWork(Timetable(Clock()))
    waiting: Any = object()
    pass_work.queues.append(waiting)
    pass_work.arrived = ARRIVED
    portions = []
    while portion := begun(pass_work):
        portions.append(portion)
    assert sum(portions) == ARRIVED
    assert max(portions) <= ARRIVED // 2


def test_what_no_queue_waits_to_hand_out_is_not_kept() -> None:
    pass_work = PassWork(Timetable(Clock()))
    pass_work.arrived = ARRIVED
    assert 0 < begun(pass_work) <= ARRIVED // 2
    assert begun(pass_work) == 0


def test_a_little_that_arrives_is_handed_out_at_once() -> None:
    pass_work = PassWork(Timetable(Clock()))
    pass_work.arrived = 1000
    assert begun(pass_work) == 1000
    assert begun(pass_work) == 0
