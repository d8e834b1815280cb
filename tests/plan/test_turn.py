"""The ring in which rows take turns: one at a time, in its order."""

import threading

from common.plan.turn import ring


def test_rows_take_turns_in_the_order_of_the_ring(tmp_path):
    seen, inside = [], threading.Semaphore(1)

    def row(turn):
        turn.wait()
        for number in range(20):
            assert inside.acquire(blocking=False)
            seen.append((number, turn.place))
            inside.release()
            turn.go_round()
        turn.pass_on()

    with ring(tmp_path, 3) as turns:
        assert all(turn.waits for turn in turns)
        threads = [threading.Thread(target=row, args=[turn], daemon=True) for turn in turns]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [turn.waits for turn in turns] == [True, True, False]
    assert seen == [(number, place) for number in range(20) for place in range(3)]


def test_nobody_moves_before_the_first(tmp_path):
    with ring(tmp_path, 2) as (first, second):
        later = threading.Thread(target=second.wait, daemon=True)
        later.start()
        later.join(0.1)
        assert later.is_alive() and second.waits
        first.wait()
        assert not first.waits
        first.pass_on()
        later.join(10)
        assert not later.is_alive() and first.waits and not second.waits
