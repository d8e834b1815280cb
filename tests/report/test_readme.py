# SPDX-License-Identifier: Apache-2.0
"""Test README.md: what its generated parts say, and that versions and durations are those of the project."""

import json
import re
import tomllib
from types import SimpleNamespace

import msgspec
import pytest
from conftest import ROOT
from made_records import rows_of, write_campaign

from dataflow.analysis.outcomes import PredictedTime
from dataflow.analysis.stored_costs import CostFile, FittedMachine, StoredCost
from dataflow.records.schema import ProcessCost
from dataflow.report import front_page
from dataflow.report.front_page import AnswerSources, build_three_answers
from dataflow.report.pages import load_rows
from examples.profiled import publish

README = (ROOT / "README.md").read_text()
GENERATED = r"<!-- ([\w-]+): written by make publish -->\n(.*?)<!-- end of \1 -->"
KEPT = {"retain_memory": True}
GIB = 2**30


@pytest.fixture
def headline(tmp_path):
    """Return the rows of three boots by their names: the configurations of the three answers."""
    for boot in ("a", "b", "c"):
        environment = {"clock_code": "a", "boot": boot, "versions": {"ray": "2.60.0", "torch": "2"}}
        times = []
        for name, flags, gib, seconds in (
            ("store driver-queue", {}, 7, 3.0),
            ("store refs", {}, 6, 2.0),
            ("store refs", KEPT, 11, 0.5),
            ("graph shm", {}, 5, 1.0),
        ):
            processes = {"driver": ProcessCost(peak_memory_bytes=gib * GIB)}
            times.append((name, flags, seconds, {"processes": processes}))
        write_campaign(tmp_path / boot, *times, environment=environment)
    return {row.newest.name: row for row in load_rows(tmp_path)}


def make_cost(name, copies, faults, rest=0.0, error=0.05, table="headline"):
    return StoredCost(
        configuration=name,
        table=table,
        flow="online-dpo",
        iteration_bytes=448 * 2**20,
        readers_own_a_copy=True,
        copies=copies,
        faults=faults,
        fixed_seconds=rest,
        error=error,
        factor=1.2,
        machines=3,
    )


def make_costs(*others):
    """Return costs of the configurations of the three answers and others, and two machines."""
    costs = [
        make_cost("store driver-queue", 17.96, 677_900.0),
        make_cost("store refs", 13.57, 411_300.0, error=0.0723),
        make_cost("store refs --retain-memory", 4.353, 10_530.0, rest=0.1335),
        *others,
    ]
    machines = [
        FittedMachine(boot="a", byte_seconds=1e-10, fault_seconds=1.5e-6),
        FittedMachine(boot="b", byte_seconds=5e-11, fault_seconds=1.2e-6),
    ]
    return CostFile(campaigns=["a", "b"], machines=machines, costs=costs, unexplained=[])


GRAPH = make_cost("graph shm", 2.357, 114_700.0)


def build(headline, costs, elsewhere=(), **others):
    return build_three_answers(AnswerSources(headline, dict(elsewhere), **others), costs)


def test_the_three_answers_have_factors_copies_page_faults_what_they_leave_and_memory(headline):
    of_weights = make_cost("graph shm", 99.0, 1.0, error=0.19, table="weights")
    section = build(headline, make_costs(GRAPH, of_weights))
    assert section.sentence.startswith("One iteration sends 448 MiB in 5 messages. ")
    setting = (
        "Measured on machines with 2 cores, no GPU, and huge pages set to ?; tensors are on CPUs"
    )
    assert setting in section.sentence
    rows = rows_of(section)
    assert [row["times as fast (3 boots)"] for row in rows] == ["1", "1.5", "6", "3"]
    assert [row["copies"] for row in rows] == ["18", "14", "4.4", "2.4"]
    assert [row["other ms"] for row in rows] == ["0", "0", "130", "0"]
    faults = ["680,000", "410,000", "11,000", "110,000"]
    assert [row["page faults"] for row in rows] == faults
    assert [row["memory GiB"] for row in rows] == ["7", "6", "11", "5"]
    note, on_cheap_faults = section.notes
    assert "assumes 0.1 µs per page fault, and 33 ms per copy (14 GB/s" in on_cheap_faults
    assert "can be wrong by a factor of up to 1.2 (95 %). The variables" in on_cheap_faults
    assert "took 23 to 47 ms, and a page fault 1.2 to 1.5 µs)" in note
    assert "the rms error of a configuration is up to 7 %. [How far" in note


def test_the_answers_say_how_far_off_predictions_of_new_machines_were(headline):
    def make(predicted):
        return PredictedTime(
            SimpleNamespace(seconds=predicted), mean_seconds=1.0, median_seconds=9.0
        )

    new = [[make(1.25), make(0.8)], [], [make(1.5)]]
    note, *_ = build(headline, make_costs(GRAPH), of_new_machines=new).notes
    said = "predictions were off by a factor of 1.25 and 1.5 (rms of 2 and 1 configurations with 100 MiB"
    assert said in note


def test_a_column_predicts_the_answers_where_page_faults_are_cheap(headline):
    rows = rows_of(build(headline, make_costs(GRAPH)))
    predicted = [row["predicted for 0.1 µs per page fault"] for row in rows]
    # By the geometric mean of the two machines, a copy takes 33 ms: 600 + 68 ms, 450 + 41, 140 + 1 + 134, 78 + 11.
    assert predicted == ["1", "1.4", "2.4", "7.4"]
    *_, unknown = rows_of(build(headline, make_costs()))
    assert unknown["predicted for 0.1 µs per page fault"] == "?"


def test_graphs_with_kept_memory_and_direct_transport_are_shown_if_they_were_measured(headline):
    graph = headline["graph shm"]
    names = ("graph shm --retain-memory", "rdt nixl --retain-memory")
    section = build({**headline, **dict.fromkeys(names, graph)}, make_costs(GRAPH))
    *_, direct, kept_graph = rows_of(section)
    assert direct["change"].endswith("(`rdt nixl --retain-memory`)")
    assert kept_graph["change"].endswith("(`graph shm --retain-memory`)")
    for row in (direct, kept_graph):
        assert row["times as fast (3 boots)"] == "3"
        assert row["copies"] == "?"


def test_the_answers_have_the_measurement_whose_page_faults_were_nearest_to_the_assumed_ones():
    def make(state, fault_seconds, table="headline", **milliseconds):
        checked = []
        for name, (predicted, measured) in milliseconds.items():
            item = SimpleNamespace(
                configuration=name.replace("_", " "), table=table, seconds=predicted
            )
            checked.append(SimpleNamespace(predicted=item, measured_seconds=measured))
        return SimpleNamespace(state=state, fault_seconds=fault_seconds, runs=1, checked=checked)

    queues = {"store driver-queue": (1.0, 0.9)}
    near = make("huge pages", 2.6e-7, **queues, graph_shm=(0.2, 0.3))
    far = make("as it is", 2.5e-6, **queues, graph_shm=(0.1, 0.1))
    incomplete = make("nothing", 1e-8, **queues, graph_shm=(0.1, None))
    small = make("other messages", 1e-7, table="own-flow", **queues, graph_shm=(0.1, 0.1))
    said = front_page.describe_nearest_check([far, near, small, incomplete])
    assert said.startswith(
        "Where a page fault took 0.26 µs (huge pages; one run per configuration)"
    )
    assert "as 3 times as fast as the first row" in said
    assert "5 times were predicted" in said
    assert front_page.describe_nearest_check([incomplete]) == ""


def test_what_neither_copies_nor_page_faults_explain_has_a_column_if_there_is_any(headline):
    costs = make_costs(GRAPH)
    without = [cost for cost in costs.costs if not cost.fixed_seconds]
    rows = rows_of(build(headline, msgspec.structs.replace(costs, costs=without)))
    assert "other ms" not in rows[0]


def write_other_machine(folder, *times):
    """Return the rows of a machine with 16 cores."""
    versions = {"ray": "2.60.0", "torch": "2.11.0"}
    environment = {"clock_code": "a", "boot": "d", "logical_cpus": 16, "versions": versions}
    write_campaign(folder / "others" / "d", *times, environment=environment)
    return {row.newest.name: row for row in load_rows(folder / "others")}


def test_the_answers_have_a_column_of_other_machines(headline, tmp_path):
    times = [("store driver-queue", {}, 2.0), ("graph shm", {}, 0.2)]
    elsewhere = write_other_machine(tmp_path, *times)
    rows = rows_of(build(headline, make_costs(), elsewhere))
    assert [row["on 16 cores (one boot)"] for row in rows] == ["1", "-", "-", "10"]


def test_a_factor_of_rows_that_share_no_campaign_is_not_known(headline, tmp_path):
    elsewhere = write_other_machine(tmp_path, ("store driver-queue", {}, 2.0))
    mixed = {**elsewhere, "graph shm": headline["graph shm"]}
    rows = rows_of(build(headline, make_costs(), mixed))
    assert [row["on 2 to 16 cores (4 boots)"] for row in rows] == ["1", "-", "-", "-"]


def test_an_answer_says_if_copies_and_page_faults_do_not_explain_it(headline):
    *_, graph = rows_of(build(headline, make_costs()))
    assert {graph[name] for name in ("copies", "page faults", "other ms")} == {"?"}


def test_there_are_no_answers_if_one_of_the_configurations_was_not_measured(headline):
    del headline["graph shm"]
    section = build(headline, make_costs())
    assert (section.sentence, section.table) == ("", None)


def test_the_answers_have_what_a_change_gained_in_a_system_itself(headline):
    *_, note = build(headline, make_costs(GRAPH), of_systems="a, with b: 2").notes
    assert note.startswith(
        "**In a known system itself**, so many times as fast: a, with b: 2 ([more]"
    )


def test_the_answers_end_with_what_was_measured_on_gpus(headline):
    *_, note = build(headline, make_costs(), on_gpus="300 ms.").notes
    assert note == "**On a GPU:** 300 ms. More is [here](docs/cluster.md#gpus)."


def test_the_advice_of_raymeter_is_a_part_of_an_output_that_another_page_has():
    path = ROOT / publish.RECORDS / "example.json"
    printed = json.loads(path.read_text())["printed"]
    advice = publish.find_first_advice(printed)
    assert advice.startswith("1. saves ") and advice in printed
    assert "raymeter explain" not in advice
    parts = dict(re.findall(GENERATED, README, re.DOTALL))
    assert parts["raymeter-advice"] == publish.quote(advice) + "\n"
    assert publish.find_first_advice("Moving data is 1 %.\n") == ""


def test_readme_has_no_measured_number_that_is_not_generated():
    written = re.sub(GENERATED, "", README, flags=re.DOTALL)
    assert written != README
    number = r"\b[\d][\d.,]*(?: to [\d.,]+)? ?(?:times|copies|page faults|GB/s|µs|ms|%|x)(?!\w)"
    assert re.findall(number, written) == []
    assert re.findall(number, "4.3 times, 1 to 2 ms, 5 %") == ["4.3 times", "1 to 2 ms", "5 %"]


def minor_version(text):
    """Return the first two numbers of a version, as in ray[adag]==2.60.0."""
    return re.search(r"[=>]=(\d+\.\d+)", text)[1]


def test_readme_names_the_versions_that_the_project_and_raymeter_need():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Version {project['version']}, " in README
    assert f"Python {minor_version(project['requires-python'])} or newer" in README
    requirements = (ROOT / "requirements.txt").read_text()
    ray = minor_version(re.search(r"^ray\S*", requirements, re.MULTILINE)[0])
    assert f"downloads Ray {ray}" in README
    tested = json.loads((ROOT / publish.RECORDS / "versions.json").read_text())
    rays = sorted(version["ray"].rpartition(".")[0] for version in tested)
    assert f"Ray ({rays[0]} to {rays[-1]})" in README


def test_a_duration_of_readme_is_that_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^ +make ([\w-]+) +# .*\((.*)\)$", README, re.MULTILINE)
    assert {target for target, _ in targets} >= {"demo", "quick", "campaign", "gpu"}
    for target, duration in targets:
        described = re.search(rf"^# make {target} .*", makefile, re.MULTILINE)[0]
        assert duration.partition(" on ")[0] in described, target
