"""The blocks of a sweep file as pydantic models: keys, types and defaults.

These models are the only description of the file's keys: the parser validates with them, the JSON Schema is generated
from them, and the reference page is tested against them. Checks that involve several keys are elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from sweep.contract import Devices, count_nontraining_processes
from sweep.events import Value
from sweep.prices import Market, Price
from sweep.space.objectives import Goal, Impute
from sweep.text import parse_percent

LATER = frozenset(
    {
        *(
            "all_data",
            "data_seed",
            "deterministic",
            "run_eagerly",
            "jit_compile",
            "fuse",
            "servers",
        ),
        *("co2_g_per_kwh", "price_per_gpu_hour", "max_share", "money", "gain", "gain_per_hour"),
    }
)
"""Keys that earlier releases did not have."""


class Block(BaseModel):
    """Base class of the blocks of a sweep file: mappings with a fixed set of keys, whose values are not converted."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # or else each command would build the validators of all blocks one by one
    )

    def to_plain_data(self) -> dict[str, Value]:
        """Return all keys with their values, as plain data for JSON; nested blocks become dictionaries.

        Keys of this block in `LATER` are left out if they have their default, so that the files of older sweeps stay
        unchanged. Other keys with their default are included.
        """
        fields = type(self).model_fields
        left_out = set()
        for key in LATER & fields.keys():
            if getattr(self, key) == fields[key].default:
                left_out.add(key)
        dumped: dict[str, Value] = self.model_dump(mode="json", exclude=left_out)
        return dumped


Number: TypeAlias = int | float
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Amount: TypeAlias = Annotated[float, Field(gt=0)]


def _check_share(text: str) -> str:
    """Return a share such as ``20%`` unchanged. Raises ValueError for 0%."""
    if not parse_percent(text):
        raise ValueError("a share above 0%")
    return text


Share: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})? ?%$",
        json_schema_extra={"expected": "a share such as 20%"},
    ),
    AfterValidator(_check_share),
]


def _check_gpus(gpus: float) -> float:
    """Return a number of GPUs unchanged. Raises ValueError for a number above 1 that is not whole."""
    if gpus > 1 and gpus != int(gpus):
        raise ValueError("a whole number of GPUs, or a share of one below 1")
    return gpus


def _refuse_list(amount: object) -> object:
    """Return a number of CPUs or GPUs unchanged. Raises ValueError for a list, as all workers have the same number."""
    if isinstance(amount, list):
        raise ValueError("one number, for all workers of a trial get the same")
    return amount


class Markets(Block):
    """Prices of one kind of node."""

    on_demand: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Price on an on-demand node."
    )
    spot: Annotated[float, Field(ge=0)] | None = Field(None, description="Price on a spot node.")

    @property
    def prices(self) -> Mapping[Market, float]:
        """The prices that are set, by market."""
        both: dict[Market, float | None] = {"on_demand": self.on_demand, "spot": self.spot}
        prices = {}
        for market, price in both.items():
            if price is not None:
                prices[market] = price
        return prices


OnePrice: TypeAlias = Annotated[float, Field(ge=0)]


def _check_prices(given: object) -> object:
    """Return prices of nodes unchanged. Raises ValueError for a mapping, outer or inner, without any price.

    Anything but a mapping is returned without a check.
    """
    if not isinstance(given, dict):
        return given
    # the prices by kind of node, and for each kind that has several those by market
    for each in (given, *given.values()):
        if isinstance(each, dict) and all(price is None for price in each.values()):
            raise ValueError("a price for each kind of node, and at least one kind")
    return given


ForAll: TypeAlias = Annotated[float, BeforeValidator(_refuse_list)]


class Metric(Block):
    """What to optimize: a metric that the trainable reports each epoch."""

    name: Text = Field(description="Name of the metric, as the trainable reports it.")
    goal: Goal = Field("minimize", description="Whether smaller or larger is better.")
    target: float | None = Field(
        None, description="A trial that reaches this value is complete, and ends the sweep."
    )
    impute: Impute | None = Field(
        None,
        description="What a failed, diverged or oom trial counts as: its own latest or best value, or worst of all. "
        "Left out, a failed one counts nothing and the others as worst.",
    )
    impute_while_running: Impute | Literal["false", False] = Field(
        "false", description="Accepted from W&B files and ignored: running trials are not imputed."
    )


class Training(Block):
    """How every trial trains, whatever its parameters."""

    precision: Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "auto", description="Keras' dtype policy; auto: the best that the device computes fast."
    )
    strategy: Literal["auto", "none", "one_device", "mirrored", "tpu", "parameter_server"] = Field(
        "auto",
        description="The tf.distribute strategy; auto: by the number of GPUs of a trial. parameter_server: weights lie "
        "on resources.servers, and workers train them asynchronously.",
    )
    cross_device: Literal[
        "auto", "nccl", "ring", "hierarchical_copy", "reduction_to_one_device"
    ] = Field("auto", description="How replicas add up their gradients.")
    loop: Literal["own", "fit"] = Field(
        "own", description="The training loop; fit: Model.fit, for Keras's callbacks."
    )
    patience: Count | None = Field(
        None, description="A trial ends after this many epochs without a better objective."
    )
    all_data: bool = Field(
        False,
        description="Train on the validation data as well: nothing is held out, no val_ metric is reported.",
    )
    data_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = Field(
        None,
        description="Seed of what data() draws, the same for all trials; if left out, that of the sweep.",
    )
    deterministic: bool = Field(
        False,
        description="The same bits from the same seed on the same kind of GPU, at some cost in speed. Without it, "
        "kernels and the order of sums may differ by a last bit between processes on GPUs.",
    )
    jit_compile: Literal["auto", True, False] = Field(
        "auto",
        description="Updates compiled by XLA; auto: on GPUs, where they can be. true: on CPUs too, and trials whose "
        "updates cannot be compiled fail.",
    )
    run_eagerly: bool = Field(
        False,
        description="Train op by op, so that breakpoints and prints in the trainable see values; slow.",
    )
    fuse: Literal["auto", False] | Annotated[int, Field(ge=2, le=1024)] = Field(
        False,
        description="Trials of one structure that a worker trains as one program, at most; auto: up to 32 (8 where the "
        "method learns), where that is measured to be faster.",
    )


class Resources(Block):
    """What each trial is given."""

    cpus: Annotated[ForAll, Field(gt=0)] = Field(
        1.0, description="CPU cores per trial, of each worker."
    )
    gpus: Annotated[ForAll, Field(ge=0), AfterValidator(_check_gpus)] | Literal["auto"] = Field(
        0.0,
        description="GPUs per trial, of each worker: a share of one below 1, or a whole number of them; auto: one, "
        "shared by as many trials as fit into its memory and make it faster, as measured.",
    )
    workers: Count = Field(
        1,
        description="Processes that train a trial together, each with these cpus and gpus, on one node or several.",
    )
    servers: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Processes that keep a trial's weights for its workers, with these cpus and no GPUs, for "
        "training.strategy parameter_server; one more coordinates.",
    )
    max_concurrent: Count | Literal["auto"] = Field(
        "auto", description="Trials at a time; auto: as many as fit."
    )
    max_share: Annotated[float, Field(ge=0.01, le=1)] | None = Field(
        None,
        description="At most this share of the trials that fit on the cluster at a time; 0.5: half of it.",
    )
    trial_hours: Amount | None = Field(
        None, description="Hours after which a trial is ended as failed."
    )
    epoch_minutes: Amount | None = Field(
        None,
        description="Minutes without an epoch after which a trial is ended as failed; by default ten minutes and ten "
        "times its longest epoch, and for its first epoch an hour and ten times the longest first one of the session.",
    )

    co2_g_per_kwh: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Grams of CO2 of a kilowatt-hour where it runs, for the column co2_g."
    )

    price_per_gpu_hour: Annotated[
        OnePrice | dict[str, OnePrice | Markets] | None, BeforeValidator(_check_prices)
    ] = Field(
        None,
        description="What a GPU costs for an hour, in any currency: a number, or numbers by the labels of Ray's "
        "nodes (accelerator type or node group), each one number or {on_demand: 4.1, spot: 1.6}.",
    )

    @property
    def price(self) -> Price | None:
        """The price of a GPU-hour: a number, or a mapping by the kind of node; None if none is set.

        The price of a kind of node is a number, or a mapping from those markets that have a price, ``on_demand`` and
        ``spot``, to their prices.
        """
        given = self.price_per_gpu_hour
        if not isinstance(given, dict):
            return given
        prices = {}
        for kind, price in given.items():
            prices[kind] = price.prices if isinstance(price, Markets) else price
        return prices

    @property
    def processes(self) -> int:
        """Number of processes of a trial: its workers and, with parameter servers, the servers and a coordinator."""
        return self.workers + count_nontraining_processes(self.servers)

    @property
    def most_gpus(self) -> float:
        """Number of GPUs of a worker, which may be a share of one; 1 for ``gpus: auto``, where trials share a GPU."""
        return 1.0 if self.gpus == "auto" else self.gpus

    def devices(self, simulated_gpus: int | None) -> Devices:
        """Return the CPUs and GPUs of each worker, marked as simulated unless ``simulated_gpus`` is None.

        Logical CPU devices stand in for the GPUs of a worker that is marked so. Each worker has as many of them as it
        would have GPUs (`most_gpus`): the number ``simulated_gpus`` is not used, and a worker without GPUs is never
        marked.
        """
        gpus = self.most_gpus
        return Devices(self.cpus, gpus, simulated=simulated_gpus is not None and gpus > 0)

    @property
    def trial_gpus(self) -> float:
        """Number of GPUs of a trial, over all its workers; 1 for each worker with ``gpus: auto``."""
        return self.most_gpus * self.workers


class Budget(Block):
    """Where the sweep stops, whichever bound is met first."""

    trials: Count | None = Field(None, description="Configurations to try, like run_cap.")
    hours: Amount | None = Field(None, description="Hours on the clock.")
    gpu_hours: Amount | None = Field(None, description="Hours times GPUs in use.")
    epochs: Count | None = Field(None, description="Epochs of all trials together.")
    money: Amount | None = Field(
        None, description="What its GPUs cost, by resources.price_per_gpu_hour."
    )

    @property
    def bounds_time(self) -> bool:
        """Whether the budget has a bound other than its trials: on hours, GPU-hours, epochs or money."""
        return bool(self.hours or self.gpu_hours or self.epochs or self.money)


class StopWhen(Block):
    """When the sweep as a whole is no longer worth its cost."""

    no_improvement: Count | None = Field(
        None, description="Finished trials in a row without a better objective."
    )
    gain: Annotated[float, Field(gt=0)] | Literal["auto"] | None = Field(
        None,
        description="End the search once a model expects less gain than this from the next 8 configurations; auto: "
        "the smallest gain that seeds and held-out examples can show.",
    )
    gain_per_hour: Amount | None = Field(
        None,
        description="The same for each hour that those are expected to train: the gain that an hour must bring.",
    )

    @property
    def asks_for_gain(self) -> bool:
        """Whether the sweep ends by the gain that a model expects from further configurations."""
        return self.gain is not None or self.gain_per_hour is not None


class Checkpoint(Block):
    """How often trials are saved, and what is kept."""

    every_s: Annotated[float, Field(ge=0)] = Field(
        60.0, description="Seconds of training between checkpoints of a trial; 0: every epoch."
    )
    keep: Count = Field(
        2, description="Newest checkpoints kept of an unfinished trial, beside its best one."
    )
    trials: Count = Field(
        100,
        description="Completed trials, the fresh seeds and then the best, that keep their last checkpoint and "
        "that of their best epoch.",
    )
    space_gb: Annotated[float, Field(ge=0)] = Field(
        10.0,
        description="Gigabytes (1e9 bytes) for these; the worst trials' are deleted first, the best one's never.",
    )
    sync_s: Annotated[float, Field(ge=0.1, le=60)] = Field(
        2.0,
        description="With results in an object store: seconds until what was logged is there, at most.",
    )
    durable: bool = Field(
        False,
        description="With results in an object store: act on the end of a trial once it is logged there.",
    )


class Confirm(Block):
    """Further seeds for the configurations that could still be the best, once the search has ended."""

    seeds: Annotated[int, Field(ge=2, le=1000)] = Field(
        8, description="Fresh seeds of a finalist, at most."
    )
    finalists: Annotated[int, Field(ge=2, le=100)] = Field(
        8,
        description="Configurations that get them, at most: the best ones that completed, beside the baseline.",
    )
    budget: Share | None = Field(
        "20%",
        description="Epochs that all of this may take, as a share of those of the search; null: no bound.",
    )

    race: Literal[1, 2] = Field(
        2,
        description="Version of the rule by which finalists drop out: in version 1, that of earlier sweeps, two equal "
        "differences were enough.",
    )

    def share(self) -> float | None:
        """Return the budget as a fraction of the epochs of the search, such as 0.2; None without a budget.

        It may be above 1.
        """
        if self.budget is None:
            return None
        return parse_percent(self.budget)


NoticeKind: TypeAlias = Literal["finished", "failed", "best", "budget", "verdict", "worker_lost"]
Variable: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        json_schema_extra={
            "expected": "the name of an environment variable, such as SLACK_WEBHOOK_URL"
        },
    ),
]
HttpUrl: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^https?://[^\s@/?#]+([/?#]\S*)?$",  # without a user and a password
        json_schema_extra={"expected": "a URL such as https://host/path"},
    ),
]


class Notify(Block):
    """One receiver of notices: a command, a webhook, Slack or a mail address. Secrets are in environment variables."""

    command: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = Field(
        None,
        description="A program and its arguments; it reads the notice as JSON from standard input.",
    )
    webhook: HttpUrl | None = Field(
        None, description="A URL that receives the notice as JSON, by POST."
    )
    token: Variable | None = Field(
        None,
        description="With webhook: the environment variable with the token that is sent as Authorization: Bearer.",
    )
    slack: Variable | None = Field(
        None, description="The environment variable with the URL of a webhook of Slack."
    )
    mail: Text | None = Field(None, description="A mail address.")
    server: Text | None = Field(
        None, description="With mail: host and port of the SMTP server, as host:587."
    )
    sender: Text | None = Field(
        None, description="With mail: the address that it comes from; by default mail's own."
    )
    user: Text | None = Field(None, description="With mail: the user of the SMTP server.")
    password: Variable | None = Field(
        None, description="With user: the environment variable with the password."
    )
    on: Annotated[tuple[NoticeKind, ...], Field(strict=False, min_length=1)] | None = Field(
        None,
        description="What is told: finished, failed, best, budget, verdict, worker_lost; by default all but best.",
    )

    @property
    def kinds(self) -> tuple[NoticeKind, ...]:
        """The kinds of notices that are sent to this receiver; by default all but "best"."""
        if self.on is None:
            return ("finished", "failed", "budget", "verdict", "worker_lost")
        return self.on

    @property
    def variables(self) -> Mapping[str, str]:
        """The names of the environment variables that hold this receiver's secrets, by key; only those that are set."""
        named = {"token": self.token, "slack": self.slack, "password": self.password}
        variables = {}
        for key, variable in named.items():
            if variable is not None:
                variables[key] = variable
        return variables


def find_notify_mistakes(one: Notify) -> list[tuple[str, str, str]]:
    """Return the key, the mistake and a hint for each of a receiver's keys that requires another key which is missing.

    A ``server`` that is not ``host:port`` is a mistake as well. If the receiver has none or several of ``command``,
    ``webhook``, ``slack`` and ``mail``, only this mistake is returned, with the key "". Without mistakes, the result is
    [].
    """
    ways = []
    for key in ("command", "webhook", "slack", "mail"):
        if getattr(one, key) is not None:
            ways.append(key)
    if len(ways) != 1:
        what = f"{' and '.join(ways) or 'none of them'}, expected one of command, webhook, slack and mail"
        return [("", what, "write an entry for each receiver")]
    found = []
    # keys that mean nothing without another key
    needed_by_key = {
        "token": "webhook",
        "server": "mail",
        "sender": "mail",
        "user": "mail",
        "password": "user",
    }
    for key, other in needed_by_key.items():
        if getattr(one, key) is not None and getattr(one, other) is None:
            found.append((key, f"means nothing without {other}", "leave it out"))
    if one.mail is not None and one.server is None:
        found.append(("mail", "has no server", "write server: host:587"))
    if one.user is not None and one.password is None:
        found.append(
            ("user", "has no password", "write password: and the name of an environment variable")
        )
    if one.server is not None and not re.fullmatch(r"[^\s:@]+:\d{1,5}", one.server):
        found.append(
            ("server", f"text {one.server!r}, expected host:port", "as in smtp.example.org:587")
        )
    return found
