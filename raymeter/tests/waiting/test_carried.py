# SPDX-License-Identifier: Apache-2.0
"""Whether the passes of a loop need each other, judged by the code of the program."""

import os
import sys
import textwrap

import pytest
from raymeter.profile.source_code import loops_around

INDEPENDENT = {
    "a list of results": """
        for shard in shards:
            results.append(ray.get(work.remote(shard)))
    """,
    "a sum": """
        for reader in readers:
            total += ray.get(reader.read.remote(1))
    """,
    "results by name": """
        for name, worker in workers.items():
            answer = ray.get(worker.score.remote(name))
            answers[name] = answer["reward"]
            print(name, answer)
    """,
    "a name that is used again": """
        for page in pages:
            text = load(page)
            text = ray.get(clean.remote(text))
            texts.append(text)
    """,
    "an attribute beside the one that is used": """
        def run(self):
            for row in self.rows:
                self.results.append(ray.get(self.worker.score.remote(row)))
    """,
    "an error": """
        for page in pages:
            answer = ray.get(fetch.remote(page))
            if not answer:
                raise ValueError(page)
    """,
    "a function of a module": """
        import numpy as np

        for row in rows:
            value = np.mean(ray.get(work.remote(np.asarray(row))))
    """,
    "a chain of two tasks": """
        for page in pages:
            text = ray.get(fetch.remote(page))
            tokens = ray.get(split.remote(text))
    """,
    "a reference": """
        for shard in shards:
            reference = work.remote(shard)
            results.append(ray.get(reference))
    """,
    "a comprehension": "answers = [ray.get(ask.remote(question)) for question in range(8)]",
    "a function of the results": "answers = [parse(ray.get(ask.remote(q))) for q in questions]",
    "the items of a dict that are replaced": """
        for name, part in parts.items():
            parts[name] = ray.get(work.remote(part))
    """,
    "an argument that is made from an item": """
        for page in pages:
            tokens = tokenize(page.strip())
            results[page] = ray.get(embed.remote(tokens, np.zeros(3)))
    """,
    "an item at a position": """
        for number in range(len(answers)):
            batch = batches[number]
            answers[number] = ray.get(work.remote(batch))
    """,
    "a list of references": """
        while step < 10:
            refs = [worker.run.remote(step) for worker in workers]
            values = ray.get(refs)
            step += 1
    """,
}
DEPENDENT = {
    "a state": """
        for _ in range(5):
            state = ray.get(simulator.advance.remote(state))
    """,
    "a state that is computed from the result": """
        for _ in range(5):
            gradient = ray.get(compute.remote(weights))
            weights = weights - 0.1 * gradient
    """,
    "an object that keeps the result": """
        for _ in range(5):
            model.update(ray.get(compute.remote(model.weights)))
    """,
    "a reference of the last task": """
        for _ in range(5):
            reference = train.remote([reference])
            ray.get(reference)
    """,
    "an attribute": """
        def run(self):
            for _ in range(5):
                self.state = ray.get(advance.remote(self.state))
    """,
    "a list of earlier results": """
        for _ in range(5):
            history.append(ray.get(ask.remote(history)))
    """,
    "an end that depends on the result": """
        while True:
            loss = ray.get(train.remote(1))
            if loss < 0.1:
                break
    """,
    "a condition of the loop": """
        while loss > 0.1:
            loss = ray.get(train.remote(1))
    """,
    "a choice that depends on the result": """
        for _ in range(9):
            score = ray.get(train.remote(rate))
            if score < best:
                rate = rate / 2
    """,
    "a function that changes its argument": """
        for _ in range(9):
            gradient = ray.get(compute.remote(weights))
            apply(weights, gradient)
    """,
    "two tasks that follow each other": """
        for _ in range(9):
            batch = ray.get(sample.remote(weights))
            weights = ray.get(train.remote(batch))
    """,
    "a comprehension in the arguments": """
        for _ in range(50):
            state = ray.get(step.remote(state, [p.id for p in peers]))
    """,
    "a comprehension over the result": """
        for _ in range(50):
            state = [part for part in ray.get(step.remote(state)) if part]
    """,
    "a comprehension over what holds a result": """
        for _ in range(9):
            (gradient,) = ray.get([compute.remote(part) for part in weights])
            weights.append(gradient)
    """,
    "a function of a module that writes into its argument": """
        import numpy as np

        for batch in batches:
            gradient = ray.get(compute.remote(weights, batch))
            np.subtract(weights, gradient, out=weights)
    """,
    "a function of a module": """
        import utils

        for batch in batches:
            gradient = ray.get(compute.remote(self.weights, batch))
            utils.apply(self.weights, gradient)
    """,
    "a method that gets the weights and the result": """
        for batch in batches:
            gradient = ray.get(compute.remote(weights, batch))
            optimizer.update(weights, gradient)
    """,
    "a list that grows in the loop over it": """
        for node in queue:
            children = ray.get(expand.remote(node))
            queue.extend(children)
    """,
    "a numbered list that grows in the loop over it": """
        for number, node in enumerate(self.queue):
            self.queue += ray.get(expand.remote(node))
    """,
    "an object that gives the next task": """
        for trial in search.trials():
            search.tell(trial, ray.get(train.remote(trial)))
    """,
    "an agent with turns": """
        for _ in range(4):
            answer = ray.get(llm.remote(history))
            history.append(answer)
    """,
    "an agent with turns in a comprehension": "[h.append(ray.get(llm.remote(h))) for _ in range(4)]",
    "another try after an error": """
        for _ in range(3):
            try:
                result = ray.get(fetch.remote(page))
                break
            except ValueError:
                pass
    """,
    "a chain in one line": """
        for page in pages:
            tokens = ray.get(split.remote(ray.get(fetch.remote(page))))
    """,
}
UNKNOWN = {
    "a generator": """
        def stream():
            for page in pages:
                yield ray.get(fetch.remote(page))
    """,
    "a model with an optimizer": """
        for batch in batches:
            grads = ray.get(compute.remote(model.state_dict(), batch))
            for p, g in zip(model.parameters(), grads):
                p.grad = g
            optimizer.step()
    """,
    "a method of an object that is an argument": """
        for batch in batches:
            grads = ray.get(compute.remote(model, batch))
            model.step()
    """,
    "a function that gets an argument": """
        for batch in batches:
            grads = ray.get(compute.remote(weights, batch))
            advance(weights)
    """,
    "a part of an argument that is changed": """
        for batch in batches:
            grads = ray.get(compute.remote(weights, batch))
            for weight in weights:
                weight -= 1
    """,
    "what a function without arguments returns": """
        for batch in batches:
            save(ray.get(compute.remote(get_weights(), batch)))
    """,
    "an end that a function decides": """
        for batch in batches:
            save(ray.get(compute.remote(batch)))
            if is_done():
                break
    """,
    "a choice of a case": """
        for _ in range(9):
            match ray.get(step.remote(state)):
                case {"state": new}:
                    state = new
    """,
    "a name in a call": """
        for _ in range(9):
            print(s := ray.get(f.remote(s)))
    """,
    "a function in the loop": """
        for _ in range(9):
            def keep(result):
                state.x = result
            keep(ray.get(f.remote(page)))
    """,
    "a reader of results that may stop": "any(ray.get(f.remote(x)) for x in pages)",
    "two comprehensions in one line": "x = [ray.get(r) for r in a] + [ray.get(r) for r in b]",
    "a get beside a comprehension": """
        for _ in range(9):
            s = ray.get(f.remote(s)); x = [ray.get(p.id.remote()) for p in peers]
    """,
    "a name in a comprehension": "x = [(s := ray.get(f.remote(s))) for _ in range(8)]",
    "no loop": "x = ray.get(f.remote(1))",
}


def judge(folder, text: str) -> bool | None:
    """Return whether the passes of the innermost loop around the first get need each other."""
    path = folder / "program.py"
    code = textwrap.dedent(text)
    path.write_text(code)
    os.utime(path, (0, 0))
    number = next(number for number, line in enumerate(code.splitlines(), 1) if "ray.get" in line)
    line = f"{path}:{number}"
    loops = loops_around(line, start=1.0)
    return loops[0].needs_last_pass(line) if loops else None


@pytest.mark.parametrize("name", INDEPENDENT)
def test_passes_that_do_not_need_each_other(name, tmp_path):
    assert judge(tmp_path, INDEPENDENT[name]) is False


@pytest.mark.parametrize("name", DEPENDENT)
def test_passes_that_need_each_other(name, tmp_path):
    assert judge(tmp_path, DEPENDENT[name]) is True


@pytest.mark.parametrize("name", UNKNOWN)
def test_passes_of_which_nothing_is_known(name, tmp_path):
    assert judge(tmp_path, UNKNOWN[name]) is None


def test_the_loops_around_a_line_are_those_of_its_function(tmp_path):
    text = """
    for step in range(9):
        def run():
            for page in pages:
                ray.get(fetch.remote(page))
    """
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    os.utime(path, (0, 0))
    (loop,) = loops_around(f"{path}:5", start=1.0)
    assert loop.contains(f"{path}:5")
    assert not loop.contains(f"{path}:3")


def test_what_python_warns_about_in_the_code_is_not_printed(tmp_path, recwarn):
    text = "while True:\n    x = '\\d' is ray.get(work.remote(1))\n"
    assert judge(tmp_path, text) is False
    assert not recwarn.list


TRY_STAR = """
for _ in range(9):
    try:
        result = ray.get(f.remote(state))
    except* ValueError:
        state = 1
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="new in Python 3.11")
def test_a_group_of_errors_is_not_followed(tmp_path):
    assert judge(tmp_path, TRY_STAR) is None


def test_a_line_in_which_no_call_is_seen_says_nothing(tmp_path):
    text = """
    for question in questions:
        answers.append(service.ask(question))  # which calls ray.get
    """
    assert judge(tmp_path, text) is None


@pytest.mark.parametrize("depth", [300, 900, 20_000])
def test_a_file_that_is_too_deep_to_be_read_says_nothing(depth, tmp_path):
    deep = "+1" * depth
    text = f"for page in pages:\n    x = ray.get(f.remote(page{deep}))\n"
    assert not judge(tmp_path, text)
