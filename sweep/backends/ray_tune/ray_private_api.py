"""All uses of private names of Ray, in one list, since any release of Ray may remove them.

Each use says what is lost if one of its names is missing. The feature is then left out, and the user gets a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ray


@dataclass(frozen=True, slots=True)
class Use:
    """A feature that uses private names of Ray: the names, and what is lost without them.

    Names have the form ``module:attribute.attribute``, or ``:attribute`` for an attribute of a given object.
    """

    names: tuple[str, ...]
    loss: str


FASTER_START = Use(
    (
        "ray._private.node:Node.start_monitor",
        "ray._private.node:Node.start_api_server",
        "ray._private.node:Node.start_log_monitor",
        "ray._private.node:Node.start_ray_processes",
        "ray._private.ray_constants:RAY_DASHBOARD_STARTUP_TIMEOUT_S",
    ),
    "Ray starts more slowly",
)
AGENTS_LATER = Use(
    (
        "ray._private.node:Node.start_raylet",
        "ray._private.parameter:RayParams.update_if_absent",
        "ray._raylet:persist_port",
        "ray._raylet:METRICS_AGENT_PORT_NAME",
        "ray._raylet:METRICS_EXPORT_PORT_NAME",
        "ray._raylet:DASHBOARD_AGENT_LISTEN_PORT_NAME",
        "ray._raylet:RUNTIME_ENV_AGENT_PORT_NAME",
    ),
    "Ray starts more slowly",
)
FORKED_WORKERS = Use(
    (
        "ray._private.node:Node.start_raylet",
        "ray._private.parameter:RayParams.update_if_absent",
        "ray._raylet:AuthenticationTokenLoader.instance",
        "ray._raylet:Config.initialize",
    ),
    "each worker imports its libraries by itself, and starts more slowly",
)
PATIENT_START = Use(
    ("ray._private.services:get_node",),
    "a machine that is very busy may give Ray too little time to start",
)
OWN_MACHINE = Use(
    ("ray._private.ray_constants:ENABLE_RAY_CLUSTER",), "others in the network can reach this Ray"
)
WATCH = Use(("ray._private.worker:_global_node.all_processes",), "if Ray dies, the sweep may hang")
FASTER_END = Use(WATCH.names, "Ray ends more slowly")
MEMORY_KILLS = Use(
    (
        "ray.air.execution._internal.actor_manager:RayActorError",
        "ray.tune.execution.tune_controller:RayActorError",
    ),
    "a worker that Ray's memory monitor kills ends the sweep",
)
WAITING_PROCESSES = Use(
    ("ray.tune.execution.tune_controller:_ActorClassCache",), "workers start more slowly"
)
NAMED_WORKERS = Use(WAITING_PROCESSES.names, "Ray's dashboard does not tell whose worker is whose")
TAGGING = Use(
    ("ray.air._internal.usage:tag_callbacks",),
    "Tune imports MLflow and W&B, where they are installed, before it begins",
)
KEPT_WORKERS = Use(
    (
        "ray.tune.tune:TuneController",
        "ray.tune.execution.tune_controller:TuneController._cleanup_stopping_actors",
        "ray.tune.execution.tune_controller:TuneController._cleanup_trials",
        "ray.tune.execution.tune_controller:TuneController._maybe_cache_trial_actor",
        "ray.tune.execution.tune_controller:TuneController._maybe_reuse_cached_actor",
        "ray.tune.execution.tune_controller:TuneController._schedule_trial_stop",
        "ray.tune.utils.object_cache:_ObjectCache.flush_cached_objects",
        "ray.air.execution._internal.actor_manager:RayActorManager.remove_actor",
    ),
    "workers are not kept for the next sweep",
)
SILENCE = Use(
    ("ray.tune.progress_reporter:TrialProgressCallback",), "the driver grows with each trial"
)
FORGETTING = Use(
    (
        ":get_live_trials",
        ":_stopped_trials",
        ":_failed_trials",
        ":_trials_to_cache",
        ":_trial_metadata",
    ),
    "the driver grows and slows down with each trial",
)
STARTING_WORKERS = Use(
    (":_trial_to_actor", ":_actor_manager.is_actor_started"),
    "a worker that takes more than a minute to start may be ended before it ever runs",
)
WORDS = Use(
    ("ray._private.worker:print_to_stdstream",),
    "what it says about lost workers is written in between",
)
DRAINING = Use(
    ("ray._private.state:state.get_draining_nodes",),
    "nodes that are about to be taken away are used until they are gone",
)
AUTOSCALES = Use(
    ("ray.autoscaler.v2.utils:is_autoscaler_v2",),
    "a cluster that starts without a machine for a trial is refused",
)
PROMISES = Use(
    ("ray._private.state:state.get_cluster_config",),
    "what an autoscaler could bring is not asked for",
)

JOB_PAGE = Use(
    (
        "ray.experimental.internal_kv:_internal_kv_get",
        "ray.experimental.internal_kv:_internal_kv_put",
        "ray.experimental.internal_kv:_internal_kv_list",
        "ray._private.state:jobs",
    ),
    "Ray's dashboard shows the sweep as any other job",
)

# public, but not in every release
LOGS = Use((":get_session_name",), "where its logs are is not told")

KILLING = Use(
    (":temporary_state.ray_actor",), "a trial that hangs is given up, but its worker is not ended"
)

KEEPING = Use(KILLING.names, "a worker trains one trial at a time, whatever training.fuse says")

OF_RAY = (
    *(
        FASTER_START,
        AGENTS_LATER,
        FORKED_WORKERS,
        PATIENT_START,
        OWN_MACHINE,
        MEMORY_KILLS,
        WAITING_PROCESSES,
        NAMED_WORKERS,
        TAGGING,
        KEPT_WORKERS,
        SILENCE,
        WORDS,
    ),
    *(PROMISES, AUTOSCALES, DRAINING, JOB_PAGE),
)
OF_A_STARTED_RAY = (WATCH, FASTER_END)
OF_ITS_CONTEXT = (LOGS,)
OF_TUNES_TRIALS = (KILLING, KEEPING)
OF_TUNES_CONTROLLER = (FORGETTING, STARTING_WORKERS)


def list_missing(use: Use, owner: object = None) -> list[str]:
    """Return the private names of a feature that this Ray lacks; an empty list if it has all.

    Names of the form ``:attribute`` are looked up in ``owner``.
    """
    return [name for name in use.names if not _name_exists(name, owner)]


def is_usable(use: Use, say: Callable[[str], None], owner: object = None) -> bool:
    """Return whether all private names of a feature exist; if not, ``say`` gets a line with what is lost.

    Names of the form ``:attribute`` are looked up in ``owner``.
    """
    absent = list_missing(use, owner)
    if absent:
        # Told as `module.attribute`, or as `attribute` for one of `owner`.
        names = [name.replace(":", ".").removeprefix(".") for name in absent]
        say(f"Ray {ray.__version__} has no {', '.join(names)}: {use.loss}")
    return not absent


@contextmanager
def replacing_name(
    use: Use, say: Callable[[str], None], stand_in: Callable[[Any], Any]
) -> Iterator[None]:
    """Replace what the first private name of a feature stands for by ``stand_in(original)`` inside the block.

    Its name must be that of a module and one attribute of it. If any of the feature's names is missing, nothing is
    replaced, and ``say`` gets a line.
    """
    if not is_usable(use, say):
        yield
        return
    path, _, name = use.names[0].partition(":")  # the other names are only needed by the stand-in
    owner = import_module(path)
    theirs = getattr(owner, name)
    setattr(owner, name, stand_in(theirs))
    try:
        yield
    finally:
        setattr(owner, name, theirs)


def import_private(name: str) -> Any:
    """Import the module of Ray with this name and return it as `Any`. Raises ImportError if there is none."""
    return import_module(name)


def _name_exists(name: str, owner: object) -> bool:
    """Return whether a private name exists, of the form ``module:attribute.attribute`` or ``:attribute``.

    The module is imported; without one, the attribute is looked up in ``owner``. A name without an attribute does not
    exist, whatever the module.
    """
    path, _, attributes = name.partition(":")  # the path is "" for an attribute of `owner`
    try:
        found = import_module(path) if path else owner
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError):
        return False
    return True
