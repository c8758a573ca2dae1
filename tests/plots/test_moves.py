"""The animation shows what moved when, and refuses histories without places."""

import pytest

from dspkit import Deployment, History, Simulator, Topology, apps, plots, run, workload
from dspkit.apps.nardelli import ends
from dspkit.core import MetricError
from dspkit.placement.distributed_storm import thesis_cluster
from dspkit.policies.distributed_storm import DistributedStorm
from dspkit.policies.static import Static
from dspkit.simulator import Plant, Service


@pytest.fixture(scope="module")
def history():
    app = apps.tag_and_count()
    policy = DistributedStorm(cluster=thesis_cluster(), pinned=ends(app.topology))
    return run(policy, app.simulator(window_s=30, tick_s=5, seed=1), steps=40, seed=1)


def test_a_frame_for_each_placement_and_all_of_it_in_each(history):
    spec = plots.moves(history, thesis_cluster().plane()).spec
    placements = []
    for step in history:
        if not placements or placements[-1] != step.snapshot.deployment.placement:
            placements.append(step.snapshot.deployment.placement)
    assert len(placements) > 3
    assert len(spec["frames"]) == len(placements)
    for frame, places in zip(spec["frames"], placements, strict=True):
        told = {
            text.split(" on ")[0]: text.split(" on ")[1] for trace in frame["data"] for text in trace.get("text", ())
        }
        assert told == {f"{o}[{i}]": node for (o, i), node in places.items()}
        shown = [spec["data"][n] for n in frame["traces"]]
        assert [t.get("name") for t in shown[1:-2]] == [t.get("name") for t in frame["data"][1:-2]]
    assert [s["args"][0][0] for s in spec["layout"]["sliders"][0]["steps"]] == [f["name"] for f in spec["frames"]]


def test_its_sentence_counts_the_moves(history):
    picture = plots.moves(history)  # without a map nodes stand in a circle
    moves = 0
    for a, b in zip(history, history[1:], strict=False):
        before, after = a.snapshot.deployment.placement, b.snapshot.deployment.placement
        moves += sum(before[e] != after[e] for e in after)
    assert picture.summary.startswith(f"{moves} moves of an instance")
    assert picture.figure.frames


def test_text_is_escaped_and_what_cannot_be_drawn_is_refused(history):
    with pytest.raises(MetricError, match="no point for node"):
        plots.moves(history, {"node-1": (0, 0)})
    with pytest.raises(MetricError, match="without placements"):
        plots.moves(History(history.topology))
    odd = Topology.chain("<b>", "sink")
    plant = Plant({"<b>": Service(1e-3), "sink": Service(1e-3)})
    placed = Deployment(odd.uniform(), placement={("<b>", 0): "node-1", ("sink", 0): "node-2"})
    one = run(Static(), Simulator(odd, plant, workload.Constant(9), deployment=placed), steps=2)
    spec = plots.moves(one).spec
    assert "<b>" not in str(spec["data"])
