"""Whether the passes of a loop need each other, judged by the code of the program."""

import os
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
