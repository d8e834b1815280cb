"""Explain Ray's errors in one line that names the actor. Ray's texts are of Ray 2.60; a new version may change them."""

import re
from collections.abc import Callable

import ray

from dataflow.errors import ActorRaised, RunFailed, SuiteError


def explain_ray_error(error: Exception, describe_actor: Callable[[str], str], address: str | None) -> SuiteError | None:
    """Return an error with one line; None if Ray did not raise it.

    describe_actor: returns the words for an actor of this name.
    """
    message = str(error).strip()
    if isinstance(error, ray.exceptions.ActorDiedError) and "error raised in its" in message:
        names = re.findall(r"ray::([\w-]+)\.__init__", message) or ["an actor"]
        reason = re.sub(r"^\s*(\w+\.)*(?=\w+:)", "", message.splitlines()[-1])  # without the module of its class
        return ActorRaised(f"{names[-1]} raised {reason}")
    if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(error.cause, ray.exceptions.RayActorError):
        # All actors that wait for the result raise an actor's error again; the innermost one comes last.
        name = re.findall(r"ray::([\w-]+)", message)[-1]
        kind = "" if isinstance(error.cause, SuiteError) else f" raised {type(error.cause).__name__}"
        return ActorRaised(f"{name}{kind}: {str(error.cause).partition(chr(10))[0]}")
    if isinstance(error, ray.exceptions.RayActorError):
        died = re.search(r"class_name: ([\w-]+)", message)
        because = re.search(r"is dead because (?:.* exit detail: )?(.*?)(?: Some common causes|$)", message, re.M)
        text = describe_actor(died[1] if died else "an actor") + " died" + (f": {because[1]}" if because else "")
        if address and "all references to the actor" in text:  # the cluster sent no token
            text += " Set RAY_AUTH_MODE=disabled if the cluster was started without a token."
        return RunFailed(text)
    if isinstance(error, (ray.exceptions.RayError, SuiteError)):
        return RunFailed(message.partition("\n")[0])
    return None
