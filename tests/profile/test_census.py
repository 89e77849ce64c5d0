import threading

from oomdoctor.profile.census import Census


class Holder:
    def __init__(self):
        self.rows = []


def taken(census, steps, grow):
    lines = []
    for step in range(10, 10 * steps + 1, 10):
        grow()
        lines = census.take(step)
    return lines


def test_a_list_that_only_grows_is_named_by_who_holds_it():
    holder = Holder()
    lines = taken(
        Census(roots=lambda: [("Holder.rows", holder.rows)]),
        4,
        lambda: holder.rows.extend(bytes(200_000) for _ in range(10)),
    )
    found = [line for line in lines if "rows" in line.what]
    assert found[0].what == "Holder.rows (list)"
    assert found[0].kind == "objects_kept"
    assert found[0].count == 40
    assert found[0].per_step == 1.0
    assert 7_000_000 < found[0].held_bytes < 10_000_000


def test_arrays_in_tuples_in_a_dictionary_count_as_tensors():
    import numpy as np

    holder = Holder()
    holder.rows = {}

    def grow():
        for _ in range(10):
            holder.rows[len(holder.rows)] = (np.ones(100_000), 1.0)

    lines = taken(Census(roots=lambda: [("Holder.rows", holder.rows)]), 4, grow)
    found = [line for line in lines if "rows" in line.what]
    assert found[0].kind == "tensors_kept"
    assert found[0].held_bytes > 40 * 800_000


def test_what_is_emptied_now_and_then_is_not_suspected():
    holder = Holder()

    def grow():
        if len(holder.rows) >= 30:
            holder.rows.clear()
        holder.rows.extend(bytes(200_000) for _ in range(15))

    assert [
        line
        for line in taken(Census(roots=lambda: [("Holder.rows", holder.rows)]), 6, grow)
        if "rows" in line.what
    ] == []


def test_what_is_small_is_not_worth_a_name():
    holder = Holder()
    lines = taken(
        Census(roots=lambda: [("Holder.rows", holder.rows)]),
        4,
        lambda: holder.rows.extend(range(10)),
    )
    assert [line for line in lines if "rows" in line.what] == []


def test_what_the_watcher_keeps_itself_is_not_suspected():
    holder = Holder()
    census = Census(ignored=(holder.rows,), roots=lambda: [("Holder.rows", holder.rows)])
    lines = taken(census, 4, lambda: holder.rows.extend(bytes(200_000) for _ in range(10)))
    assert [line for line in lines if "rows" in line.what] == []


def test_a_census_does_not_break_tuples_that_another_thread_is_filling():
    # `tuple(generator)` grows the tuple in place, which fails if anybody else holds it.
    failures, made, is_over = [], [], threading.Event()

    def fill():
        while not is_over.is_set():
            try:
                made.append(len(tuple(number for number in range(3000))))
            except SystemError as error:
                failures.append(error)

    threads = [threading.Thread(target=fill) for _ in range(2)]
    for thread in threads:
        thread.start()
    census = Census()
    for step in range(1, 12):
        census.take(step)
    is_over.set()
    for thread in threads:
        thread.join()
    assert made
    assert failures == []
