"""Environment variables of Ray and Ray Tune. This module does not import Ray, which reads some while it is imported."""

from __future__ import annotations

SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a trial without GPUs sees none
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",  # otherwise Tune restarts such trials itself, unknown to the driver
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # our log and Parquet files are the record
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # our handler first lets the running epochs end
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",  # Tune's snapshots are never read
    "TUNE_MAX_PENDING_TRIALS_PG": "1000000",  # start all workers at once; the driver hands out no more than fit
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1000000",
}
"""Environment variables for every Ray that a sweep uses."""

LOCAL_SETTINGS = {
    # Ray's memory monitor kills innocent processes and ends the whole experiment; the kernel picks the culprit.
    "RAY_memory_monitor_refresh_ms": "0",
    # Processes that Ray starts in advance wait for their first trial, though by then all CPUs are reserved.
    "RAY_idle_worker_killing_time_threshold_ms": "30000",
    # Trials run as without Ray; at its niceness of 15, another program leaves them a thirtieth of a core.
    "RAY_worker_niceness": "0",
    # A worker that is a fork registers when the imports are done, which takes long on a busy machine.
    "RAY_worker_register_timeout_seconds": "300",
    # Only this binds every listener to 127.0.0.1. This process has read it already: see
    # `local_ray.listening_on_localhost`.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Further environment variables for a Ray that a sweep starts on this machine."""
