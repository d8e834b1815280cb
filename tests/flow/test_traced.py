"""Flows in a file of their own, written as model calls."""

import pytest

from common.flow.catalogue import build_flow, flow_of_edges

SIZES = {"rows": 2, "prompt_len": 8, "response_len": 8}


@pytest.fixture
def trace(tmp_path):
    def trace(body, head="def my_flow(models, query):", name="my_flow"):
        path = tmp_path / "my_flow.py"
        path.write_text("\n".join([head, *(f"    {line}" for line in body.split("; "))]))
        return build_flow(f"{path}:{name}", SIZES)

    return trace


def test_calls_of_chatlearns_models_are_its_flow(trace):
    made = trace(
        "policy = models.policy(query); reference = models.reference(policy); return models.reward(policy, reference)"
    )
    known = build_flow("online-dpo", SIZES, "fields")
    assert (made.query, made.returns, made.edges) == (known.query, known.returns, known.edges)


def test_other_models_say_what_they_send_and_a_second_call_is_a_second_task_on_the_same_actor(trace):
    made = trace(
        "a = models.actor(query, emits='8kB'); b = models.critic(a, emits='v float32 4kB'); "
        "return models.actor(b, emits='8B'), b",
        head="def my_flow(models, query='tokens int64 16kB'):",
    )
    assert [(task.name, task.actor, task.reads) for task in made.tasks] == [
        ("actor", "actor", ("driver",)), ("critic", "critic", ("actor",)), ("actor-2", "actor", ("critic",))
    ]  # fmt: skip
    assert [edge.bytes for edge in made.edges] == [16000, 8000, 4000, 8, 4000]
    assert made.returns == ("actor-2", "critic")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return models.policy(query)  ; x = 1 / 0", None),
        ("x = 1 / 0; return models.policy(query)", r"my_flow.py:2: ZeroDivisionError"),
        ("a = models.policy(query); return models.judge(a)", r"my_flow.py:3: what judge sends is unknown"),
        ("return models.policy()", r"my_flow.py:2: policy reads nothing"),
        ("return models.policy(5)", r"my_flow.py:2: policy was handed 5, which no model gave"),
        ("return models.policy(query, emits='lots')", r"my_flow.py:2: .*not a number of bytes"),
        ("return None", r"my_flow.py:1: my_flow must return what models gave, and returns None"),
        ("models.policy(query); return []", r"my_flow.py:1: my_flow must return what models gave, and returns \[\]"),
        ("return query", r"my_flow.py:1: my_flow must return what models gave"),
        ("a = models.policy(query); models.reference(a); return a", r"my_flow.py:3: nobody reads what reference emits"),
        ("a = models.policy(query); b = models.policy(a); return a", r"my_flow.py:3: nobody reads what policy-2 emits"),
        ("return models.driver(query)", r"my_flow.py:2: the name driver is taken"),
        ("return models.policy(query", r"my_flow.py:2: SyntaxError"),
    ],
)
def test_what_is_no_flow_is_told_with_its_line(trace, body, reason):
    if reason is None:
        assert trace(body).returns == ("policy",)
        return
    with pytest.raises(ValueError, match=reason) as error:
        trace(body)
    assert "\n" not in str(error.value)


def test_a_file_or_function_that_is_not_there_is_refused(trace, tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none.py .No such file"):
        build_flow(f"{tmp_path}/none.py:flow", {})
    with pytest.raises(ValueError, match="there is no function other"):
        trace("return models.policy(query)", name="other")


def test_a_flow_can_be_drawn_from_the_edges_of_its_record():
    made = build_flow("ppo", SIZES)
    drawn = flow_of_edges("x.py:y", [(edge.source, edge.reader, edge.bytes) for edge in made.edges])
    assert list(map(str, drawn.edges)) == list(map(str, made.edges))
    assert [edge.bytes for edge in drawn.edges] == [edge.bytes for edge in made.edges]
