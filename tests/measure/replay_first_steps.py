"""Records the first steps of a model, replays them, and counts allocations put elsewhere: NAME."""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from oomdoctor.allocator import Pool
from oomdoctor.measure.layout import held_before
from oomdoctor.measure.replay import in_order
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.measure.worker import Request, Serving

MIB = 2**20


def main():
    spec = ModelSpec(f"measured_models:{sys.argv[1]}", sys_path=(str(Path(__file__).parent),))
    serving = Serving()
    with tempfile.TemporaryDirectory() as folder:
        serving.answer(Request(spec=spec, limit_bytes=200 * MIB, threads=1, folder=folder))
        answer = serving.answer(Request(batch_size=256, record=True, limit_bytes=200 * MIB))
    assert answer["trial"].outcome == "fits", answer
    (recorded,) = serving.recorded
    steps = [in_order(events) for events in recorded.steps]
    pool = Pool(serving.regions)
    for held in held_before(steps, [*recorded.held, *recorded.batch], serving.regions):
        assert pool.allocate_at(*held)
    places, count, elsewhere, differs = {}, 0, 0, 0
    for event in (event for step in steps for event in step):
        if event.is_release:
            pool.release(places.pop(event.address, event.address))
            continue
        place = places[event.address] = pool.allocate(event.requested_bytes)
        count += 1
        elsewhere += place != event.address
        differs = max(differs, abs(pool.in_use_bytes - event.in_use_bytes))
    print(json.dumps({"allocations": count, "elsewhere": elsewhere, "in_use_differs": differs}))


if __name__ == "__main__":
    main()
